"""`odradek local`: runs the manifests of a directory on this machine, without Kubernetes.

    odradek local quickstart quickstart          manifests to begin with
    odradek local up -f examples/quickstart      brokers and topics as the manifests say
    odradek local status -f examples/quickstart  what is there, what is awaited
    odradek local plan -f examples/quickstart    what would be done now
    odradek local credentials USER -f DIR        the client.properties of a KafkaUser
    odradek local down -f examples/quickstart    stop the brokers; their data stays

The state (data, logs, ports) is in `.odradek` next to the manifests, or where --state says.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.extras import needs_extra
from odradek_cli.local_console import CONSOLE_LISTEN, ConsoleListen, LocalConsole, WithConsole
from odradek_cli.local_start import start_detached
from odradek_cli.local_users import PROPERTIES, credentials_file
from odradek_cli.options import AsJson, Yes, confirm
from odradek_cli.output import print_json, print_table, remarks
from odradek_cli.pipeline_checks import manifest_problems
from odradek_cli.pipeline_plans import pipeline_plans
from odradek_cli.quickstart import quickstart
from odradek_cli.rolling_demo import rolling_demo

if TYPE_CHECKING:
    from odradek_operator.local.runtime import ClusterReport, LocalRuntime, Report

app = typer.Typer(help="Run clusters on this machine from manifests.", no_args_is_help=True)

app.command("demo")(rolling_demo)
app.command()(quickstart)

STOP_DEADLINE_S = 90.0

Manifests = Annotated[
    list[Path],
    typer.Option("--file", "-f", help="A manifest or a directory of them. May be repeated."),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state", help="Directory for data and logs. Default: .odradek next to the manifests."
    ),
]


@app.command()
def up(
    files: Manifests,
    state: State = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            "-d",
            help="Return when everything is ready and pipelines run; go on in the background.",
        ),
    ] = False,
    console: WithConsole = False,
    console_listen: ConsoleListen = CONSOLE_LISTEN,
) -> None:
    """Carry out the manifests, keep everything running, follow changes. Ctrl-C stops all.

    Brokers that crash are started again; changed settings are rolled out one safe step at a time.
    """
    directory = state_directory(files, state)
    web = LocalConsole(files, directory, console_listen, detach=detach) if console else None
    if detach:
        _runtime(files, directory).release()  # so that errors are printed here, not into a file
        start_detached(files, directory)
        return
    with _runtime(files, directory) as runtime:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: runtime.stop())
        screen = LocalScreen()
        try:
            runtime.run(web.shown_with(screen.show) if web is not None else screen.show)
        finally:
            if web is not None:
                web.close()
            with contextlib.suppress(OSError):  # the terminal was closed
                screen.close()
                remarks().print("Stopping the brokers …")
            runtime.stop_brokers()
    remarks().print(f"Stopped. The data is in {directory}.")


@app.command()
def plan(files: Manifests, state: State = None, as_json: AsJson = False) -> None:
    """Show the changes that the manifests would make on this machine; change nothing."""
    show_plan(files, state_directory(files, state), as_json=as_json)


@app.command()
def status(files: Manifests, state: State = None, as_json: AsJson = False) -> None:
    """Show clusters, brokers and topics, and pending changes."""
    import msgspec

    from odradek_operator.local.runtime import read_report, running_pid

    directory = state_directory(files, state)
    pid = running_pid(directory)
    if pid is None:
        raise CliError(f"no local runtime is running in {directory}; `odradek local up` starts one")
    report = read_report(directory)
    if report is None:
        raise CliError(f"the runtime (pid {pid}) has not written its status yet; try again")
    if as_json:
        print_json({"pid": pid, **msgspec.to_builtins(report, str_keys=True)})
        return
    for problem in report.problems:
        print(problem)
    for key, cluster in report.clusters.items():
        _print_cluster(key, cluster)
    _print_pipelines(report)


@app.command()
def credentials(
    user: Annotated[str, typer.Argument(help="Name of the KafkaUser, or NAMESPACE/NAME.")],
    files: Manifests,
    state: State = None,
    key: Annotated[
        str,
        typer.Option(
            "--key", help="Entry of its Secret, for example librdkafka.conf, password or user.crt."
        ),
    ] = PROPERTIES,
) -> None:
    """Print a user's credentials as client.properties. The output is secret: keep it so.

    With a password, certificates and addresses in it, it is all that a Java client needs.
    """
    path = credentials_file(user, files, state, key)
    sys.stdout.buffer.write(path.read_bytes())


@app.command()
def down(
    files: Manifests,
    state: State = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the state directory too, with all data.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Stop the runtime and its brokers, also brokers of a runtime that was killed."""
    from odradek_operator.local.runtime import lock, running_pid, stop_orphans

    directory = state_directory(files, state)
    if delete and directory.exists():
        confirm(f"Delete {directory} with the data of all its clusters?", yes)
    pid = running_pid(directory)
    if pid is not None:
        if not _end(pid):
            raise CliError(f"the runtime (pid {pid}) did not end within {STOP_DEADLINE_S:.0f} s")
        remarks().print(f"Stopped the runtime (pid {pid}) and its brokers.")
    elif directory.exists():
        with lock(directory, files):
            count = stop_orphans(directory)
            (directory / "runtime.json").unlink(missing_ok=True)
        remarks().print(f"No local runtime was running; stopped {count} brokers that it had left.")
    else:
        remarks().print(f"There is nothing in {directory}.")
    if delete and directory.exists():
        shutil.rmtree(directory)
        remarks().print(f"Deleted {directory}.")


def _end(pid: int) -> bool:
    """Stops the runtime: True when the process is gone, not only its lock on the directory."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)  # knows the process if its pid is used again
        process.terminate()
        give_up = time.monotonic() + STOP_DEADLINE_S
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > give_up:
                return False
            time.sleep(0.1)
    return True


# -- parts -----------------------------------------------------------------------------------------


def state_directory(files: list[Path], given: Path | None) -> Path:
    from odradek_operator.local.runtime import DEFAULT_STATE

    if given is not None:
        return given.resolve()
    return manifest_directory(files) / DEFAULT_STATE


def manifest_directory(files: list[Path]) -> Path:
    """Paths in manifests are resolved against it."""
    first = files[0].resolve()
    return first if first.is_dir() else first.parent


def plan_anywhere(
    files: Manifests,
    state: State = None,
    kubernetes: Annotated[
        bool,
        typer.Option(
            "--kubernetes",
            "-k",
            help="On the Kubernetes cluster of KUBECONFIG, not on this machine.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the changes that the manifests would make, and why; change nothing. -f -: stdin."""
    if kubernetes:
        _show_plan_on_kubernetes(files, as_json=as_json)
    else:
        show_plan(files, state_directory(files, state), as_json=as_json)


def _show_plan_on_kubernetes(files: list[Path], *, as_json: bool) -> None:
    with needs_extra("operator", "odradek plan --kubernetes"):
        import httpx2
        from lightkube import Client
        from lightkube.core.exceptions import ApiError, ConfigError, LoadResourceError

        from odradek_operator.kubernetes.dry_run import as_text, dry_run
        from odradek_operator.main import parse_arguments
    from odradek_api.base import InvalidManifestError
    from odradek_api.parse import load

    try:
        resources = load(files)
        found = list(dry_run(Client(), resources, parse_arguments(["-A"]).image_of))
    except InvalidManifestError as refused:
        raise CliError(str(refused)) from None
    except (ApiError, httpx2.HTTPError, ConfigError, LoadResourceError) as error:
        raise CliError(f"Kubernetes: {error}") from None
    if as_json:
        print_json({"clusters": {one.key: one.lines for one in found}})
    else:
        for one in found:
            print(as_text(one))
    if wrong := manifest_problems(resources, directory=None):
        raise CliError("\n".join(wrong))


def show_plan(files: list[Path], directory: Path, *, as_json: bool) -> None:
    from odradek_api.base import InvalidManifestError
    from odradek_operator.local.runtime import LocalRuntime, read_report, running_pid

    runtime = LocalRuntime(files, directory)
    try:
        report = runtime.plan()
    except InvalidManifestError as refused:
        raise CliError(str(refused)) from None
    finally:
        for cluster in runtime.clusters.values():
            cluster.close()
    running = read_report(directory) if running_pid(directory) is not None else None
    there = running.clusters if running else {}
    addresses = {key: one.status.bootstrap_servers for key, one in there.items()}
    wrong = manifest_problems(runtime.resources, manifest_directory(files), addresses)
    pipelines = pipeline_plans(runtime.resources, running.pipelines if running else {}, directory)
    if as_json:
        print_json({"problems": [*report.problems, *wrong],
                    "clusters": {key: c.plan for key, c in report.clusters.items()},
                    "pipelines": pipelines})  # fmt: skip
    else:
        for problem in report.problems:
            print(f"refuse: {problem}")
        for key, found in report.clusters.items():
            _print_plan(f"KafkaCluster {key}", found.plan)
        for key, lines in pipelines.items():
            _print_plan(f"SparkPipeline {key}", lines)
    if wrong:
        raise CliError("\n".join(wrong))


def _print_plan(what: str, lines: list[str]) -> None:
    print(f"{what}:" + ("" if lines else " nothing to do"))
    for line in lines:
        print(f"  {line}")


def _runtime(files: list[Path], directory: Path) -> LocalRuntime:
    from odradek_api.base import InvalidManifestError
    from odradek_api.parse import load
    from odradek_operator.local.ledger import LedgerError
    from odradek_operator.local.runtime import LocalRuntime, RuntimeBusyError

    try:
        resources = load(files)  # a wrong manifest is an error at the start, later only reported
        if not any(r.kind == "KafkaCluster" for r in resources):
            raise CliError("there is no KafkaCluster in the manifests")
        runtime = LocalRuntime(files, directory)
        runtime.read_manifests()
        if problems := runtime.manifest_problems:
            raise CliError("\n".join(problems))
        if wrong := manifest_problems(resources, manifest_directory(files)):
            raise CliError("\n".join(wrong))
        return runtime.acquire()
    except (InvalidManifestError, RuntimeBusyError, LedgerError) as error:
        raise CliError(str(error)) from None


class LocalScreen:
    """Live status on a terminal; elsewhere one line whenever something changes."""

    def __init__(self) -> None:
        from rich.live import Live

        self._console = remarks()
        self._live = Live(console=self._console, refresh_per_second=4)
        self._said: list[str] = []
        if self._console.is_terminal:
            self._live.start()

    def close(self) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def show(self, report: Report) -> None:
        lines = [*report.problems]
        for key, cluster in report.clusters.items():
            lines += _lines(key, cluster)
        for key, one in report.pipelines.items():
            state = one.status.state if one.status else "Starting"
            message = f": {one.status.message}" if one.status and one.status.message else ""
            lines.append(f"pipeline {key}: {one.waits or state}{message}")
        if self._console.is_terminal:
            with contextlib.suppress(OSError):
                self._live.update(_table(report, lines))
            return
        for line in lines:
            if line not in self._said:
                self._console.print(line, markup=False, soft_wrap=True)
        self._said = lines


def _lines(key: str, cluster: ClusterReport) -> list[str]:
    ready = [c for c in cluster.status.conditions if c.type == "Ready"]
    head = f"{key}: {ready[0].message}" if ready else key
    if ready and ready[0].status == "True":
        head += f"; clients reach it at {cluster.status.bootstrap_servers}"
    more = [disk.message for disk in cluster.status.disks]
    if cluster.registry is not None:
        more.append(cluster.registry.line)
    return [head, *(f"{key}: {line}" for line in (*more, *cluster.plan, *cluster.failures))]


def _table(report: Report, lines: list[str]) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    tables: list[Any] = []
    for key, cluster in report.clusters.items():
        table = Table(title=key, title_justify="left", box=None, pad_edge=False)
        for column in ("broker", "rack", "pid", "ready", "leaders", "preferred", "behind", "next"):
            table.add_column(column)
        for row in _rows(cluster):
            table.add_row(*row)
        tables.append(table)
    return Group(*tables, *(Text(line) for line in lines))


def _rows(cluster: ClusterReport) -> list[list[str]]:
    """Dedicated controllers, then the brokers."""
    rows = []
    for c in cluster.status.controllers:
        name, pid = f"{c.id} (controller{', active' if c.active else ''})", cluster.pids.get(c.id)
        rows.append([name, c.rack, str(pid or ""), "yes" if c.ready else "no", "", "", "",
                     c.pending])  # fmt: skip
    for b in cluster.status.brokers:
        role = " (controller)" if b.id == cluster.status.controller else ""
        pid = cluster.pids.get(b.id)
        rows.append([
            f"{b.id}{role}", b.rack, str(pid or ""), "yes" if b.ready else "no", str(b.leaders),
            str(b.preferred_leaders), str(b.under_replicated), b.pending or b.not_ready,
        ])  # fmt: skip
    return rows


def _print_cluster(key: str, cluster: ClusterReport) -> None:
    found = cluster.status
    print(f"KafkaCluster {key}, {found.ready_brokers} of {found.broker_count} brokers ready, "
          f"bootstrap {found.bootstrap_servers}")  # fmt: skip
    columns = ["broker", "rack", "pid", "ready", ">leaders", ">preferred", ">behind", "next"]
    print_table(columns, _rows(cluster))
    if cluster.admin:
        where = ", ".join(f"{b} http://{at}/metrics" for b, at in sorted(cluster.admin.items()))
        print(f"metrics: {where}")
    print_table(
        ["condition", "", "since", "message"],
        [(c.type, c.status, c.last_transition_time, c.message) for c in found.conditions],
    )
    if cluster.topics:
        print_table(
            ["topic", ">partitions", ">replicas", "ready", "message"],
            [
                (t.topic_name, t.partitions, t.replication_factor, c.status, c.message)
                for t in cluster.topics.values()
                for c in t.conditions
            ],
        )
    if cluster.users:
        print_table(
            ["user", "principal", "ready", "message"],
            [
                (key, u.principal, c.status, c.message)
                for key, u in cluster.users.items()
                for c in u.conditions
            ],
        )
    if cluster.rebalances:
        print_table(
            ["rebalance", "phase", "proposal", ">moves", "message"],
            [
                (key, r.phase, r.proposal, r.moves, r.conditions[0].message)
                for key, r in cluster.rebalances.items()
                if r.conditions
            ],
        )
    if cluster.registry is not None:
        print(cluster.registry.line)
    for line in (*cluster.plan, *cluster.failures):
        print(line)


def _print_pipelines(report: Report) -> None:
    from odradek_cli.pipeline_screen import COLUMNS, failures, pipeline_rows

    if report.pipelines:
        print_table(COLUMNS, [r for k, p in report.pipelines.items() for r in pipeline_rows(k, p)])
    for line in failures(report.pipelines):
        print(line)
