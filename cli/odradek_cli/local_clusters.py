"""Clusters of a running local runtime, for commands that name it: `odradek -f DIR topics list`.

bootstrap_of([Path("examples/quickstart")])       # where its clients connect
metrics_of([Path("…")], cluster_id)               # broker → host:port of its metrics
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from odradek_cli.errors import CliError, UsageError

if TYPE_CHECKING:
    from odradek_operator.local.report import ClusterReport

NO_LOGIN = ("", "none")


def bootstrap_of(files: list[Path], *, with_login: bool) -> str:
    """The addresses of its only cluster. `with_login`: the client has credentials."""
    clusters = _clusters(files)
    if len(clusters) != 1:
        named = ", ".join(f"{key} {one.status.bootstrap_servers}" for key, one in clusters.items())
        raise UsageError(
            f"--file: the local runtime has {len(clusters)} clusters ({named}): choose one with "
            "--bootstrap in front of the command"
        )
    ((key, found),) = clusters.items()
    bootstrap = found.status.bootstrap_servers
    if not bootstrap:
        raise CliError(f"KafkaCluster {key} is not ready yet: `odradek local status` says why")
    logins = {one.authentication for one in found.status.listeners
              if one.bootstrap_servers == bootstrap}  # fmt: skip
    if not with_login and not logins <= {*NO_LOGIN}:
        raise UsageError(
            f"KafkaCluster {key} serves users only ({', '.join(sorted(logins))}): give one of "
            "them, odradek --user NAME -f DIR …"
        )
    return bootstrap


def metrics_of(files: list[Path], cluster_id: str) -> dict[int, str]:
    """Of the brokers of the cluster with this id; none if the runtime has no such cluster."""
    for found in _clusters(files).values():
        if found.status.cluster_id == cluster_id:
            brokers = {one.id for one in found.status.brokers}
            return {b: at for b, at in found.admin.items() if b in brokers}
    return {}


def _clusters(files: list[Path]) -> dict[str, ClusterReport]:
    from odradek_cli.local import state_directory
    from odradek_operator.local.runtime import read_report, running_pid

    directory = state_directory(files, None)
    report = read_report(directory) if running_pid(directory) is not None else None
    if report is None:
        raise CliError(f"no local runtime is running in {directory}; `odradek local up` starts one")
    return report.clusters
