"""`odradek -f DIR …`: a command finds the cluster of a local runtime, and its metrics ports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli_tests.conftest import Odradek
from odradek_cli.local_clusters import metrics_of
from odradek_operator.local.locking import lock
from odradek_testkit.engines import kafka_jars

CLUSTER = """
apiVersion: odradek.dev/v1alpha1
kind: KafkaCluster
metadata: {name: main}
spec: {engine: apache, brokers: 1}
"""


def cluster(bootstrap: str, authentication: str = "", cluster_id: str = "a") -> dict[str, Any]:
    """As in the report of a runtime: brokers 0 and 1, and a dedicated controller."""
    listener = {"name": "clients", "bootstrapServers": bootstrap, "authentication": authentication}
    brokers = [{"id": node, "rack": "", "ready": True, "address": ""} for node in (0, 1)]
    status = {"clusterId": cluster_id, "bootstrapServers": bootstrap, "listeners": [listener],
              "brokers": brokers}  # fmt: skip
    admin = {"0": "127.0.0.1:1", "1": "127.0.0.1:2", "10000": "127.0.0.1:3"}
    return {"status": status, "plan": [], "admin": admin}


@contextmanager
def running(directory: Path, clusters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A runtime that holds its lock and has written this report; the option that names it."""
    state = directory / ".odradek"
    state.mkdir(exist_ok=True)
    with lock(state, [directory]):
        (state / "status.json").write_text(json.dumps({"clusters": clusters}))
        yield "-f", str(directory)


def test_the_cluster_of_a_runtime(odradek: Odradek, broker: Any, tmp_path: Path) -> None:
    stopped = odradek("-f", str(tmp_path), "topics", "list", code=1)
    assert "no local runtime is running in" in stopped.stderr
    nowhere, here = cluster("127.0.0.1:9", cluster_id="b"), cluster(broker.bootstrap)
    with running(tmp_path, {"default/main": here}) as where:
        assert broker.bootstrap in odradek(*where, "cluster", "describe").stdout
        refused = odradek(*where, "plan", code=2)
        assert "`odradek plan` does not use them" in refused.stderr
        refused = odradek(*where, "--profile", "x", "topics", "list", code=2)
        assert "--file and --profile: give one of them" in refused.stderr
    with running(tmp_path, {"default/main": here, "default/other": nowhere}) as where:
        refused = odradek(*where, "topics", "list", code=2)
        assert "default/other 127.0.0.1:9): choose one with --bootstrap" in refused.stderr
        odradek("-b", broker.bootstrap, *where, "topics", "list")
        assert metrics_of([tmp_path], "b") == {0: "127.0.0.1:1", 1: "127.0.0.1:2"}
        assert metrics_of([tmp_path], "c") == {}
    with running(tmp_path, {"default/main": cluster(broker.bootstrap, "scram-sha-512")}) as where:
        refused = odradek(*where, "topics", "list", code=2)
        assert "default/main serves users only (scram-sha-512)" in refused.stderr
    with running(tmp_path, {"default/main": cluster("")}) as where:
        assert "is not ready yet" in odradek(*where, "topics", "list", code=1).stderr


@pytest.mark.long  # a JVM starts, and the command as a process of its own
@pytest.mark.java
@pytest.mark.timeout(300)
def test_the_metrics_ports_of_apache_kafka(tmp_path: Path) -> None:
    """Its settings do not have them: the runtime's report does, or one port is named for all."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    environment = {**os.environ, "ODRADEK_KAFKA_JARS": str(kafka_jars())}
    where = ("-f", str(tmp_path))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "odradek_cli", *words],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip

    def says(*words: str) -> str:
        return run(*words, "--sample", "0", "--window", "minute").stderr

    run("local", "up", "--detach", *where)
    try:
        status = json.loads(run("local", "status", "--json", *where).stdout)
        found = status["clusters"]["default/main"]
        bootstrap = found["status"]["bootstrapServers"]
        port = found["admin"]["0"].rpartition(":")[2]
        unknown = "The metrics port of broker 0 is not known"
        assert unknown in says("-b", bootstrap, "rebalance", "propose")
        assert says(*where, "rebalance", "propose") == ""
        assert says("-b", bootstrap, "rebalance", "propose", "--metrics", port) == ""
        assert says(*where, "capacity") == ""
        wrong = says("-b", bootstrap, "rebalance", "propose", "--metrics", "1")
        assert "No loads from broker 0 (127.0.0.1:1)" in wrong
    finally:
        run("local", "down", "--delete", "--yes", *where)
