"""A schema registry from a manifest: which manifests are refused, and a real one over its life."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from odradek_api.base import LOCAL_REGISTRY_ANNOTATION
from odradek_operator.local.processes import LocalBroker
from odradek_operator.local.registry import JAR
from odradek_operator.local.runtime import LocalRuntime, stop_orphans
from odradek_schemas import Client, Registry, Schema
from odradek_testkit.ports import free_ports
from odradek_testkit.schema_registry import runner_jar
from operator_tests.local.local import KEY, Local

SCHEMA = '{"type": "record", "name": "Visit", "fields": [{"name": "page", "type": "string"}]}'


def problems(directory: Path, port: str, **spec: object) -> list[str]:
    local = Local(directory, brokers=1, **spec)
    local.annotations[LOCAL_REGISTRY_ANNOTATION] = port
    local.write()
    runtime = LocalRuntime([local.manifests], local.state)
    runtime.read_manifests()
    return runtime.manifest_problems


def test_manifests_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JAR, raising=False)
    (missing,) = problems(tmp_path, "8081")
    assert "KafkaCluster default/main" in missing
    assert "metadata.annotations[odradek.dev/local-schema-registry]: needs java, and" in missing
    assert JAR in missing
    monkeypatch.setenv(JAR, __file__)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/java")
    assert problems(tmp_path, "8081") == []
    for port in ("", "0", "65536", "http"):
        (wrong,) = problems(tmp_path, port)
        assert f"must be a port from 1 to 65535, not {port}" in wrong
    listeners = [{"name": "clients", "port": 9092, "tls": True}]
    (secured,) = problems(tmp_path, "8081", listeners=listeners)
    assert "listener clients needs tls: false and no authentication" in secured


@pytest.mark.java
@pytest.mark.long  # starts the registry's JVM five times
@pytest.mark.timeout(600)
def test_a_registry_over_its_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. It starts when the cluster is ready; a schema is registered.
    2. After kill -9, on another port, and with another runtime the schema is there.
    3. It stops with its annotation, and without a runtime by `odradek local down`."""
    monkeypatch.setenv(JAR, str(runner_jar()))
    first, second = free_ports(2)
    with Local(tmp_path, brokers=1) as local:

        def settle() -> int:
            found = local.settle(240.0).registry
            assert found is not None
            assert found.ready
            assert found.pid is not None
            client = Client(Registry(found.url))
            if found.url.startswith(f"http://127.0.0.1:{first}/") and not pids:
                client.register("visits-value", Schema("AVRO", SCHEMA))
            assert client.latest("visits-value").schema.kind == "AVRO"
            assert f"{found.url} (pid {found.pid}): ready" in found.line
            return found.pid

        pids: list[int] = []
        local.annotations[LOCAL_REGISTRY_ANNOTATION] = str(first)
        pids.append(settle())
        assert f"start the schema registry on port {first}" in local.done

        os.kill(pids[-1], signal.SIGKILL)
        local.until(lambda report: report.clusters[KEY].registry.pid != pids[-1])  # type: ignore[union-attr]
        pids.append(settle())
        local.annotations[LOCAL_REGISTRY_ANNOTATION] = str(second)
        pids.append(settle())
        local.die()
        assert settle() == pids[-1], "the next runtime finds it"
        assert len(set(pids)) == 3

        del local.annotations[LOCAL_REGISTRY_ANNOTATION]
        local.settle()
        assert not alive(local.state)
        local.annotations[LOCAL_REGISTRY_ANNOTATION] = str(first)
        settle()
        assert alive(local.state)
        local.runtime.release()
        assert stop_orphans(local.state) == 1  # the broker
        assert not alive(local.state)
        local.runtime.acquire()


def alive(state: Path) -> bool:
    return LocalBroker(-1, "", state / "default.main" / "schema-registry", "", "").pid is not None
