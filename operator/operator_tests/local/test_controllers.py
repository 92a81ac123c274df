"""Dedicated controllers in the local runtime, with real Apache Kafka: one, and one broker."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from confluent_kafka import Producer

from odradek_testkit.engines import kafka_jars
from operator_tests.local.local import KEY, Local

CONTROLLER = 10_000


@pytest.mark.java
def test_formed_found_again_and_kept_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    with Local(tmp_path, brokers=1, engine="apache", controllers={"replicas": 1}) as local:
        local.topic("orders", partitions=1)
        found = local.settle(240)
        assert sorted(found.pids) == [0, CONTROLLER]
        assert local.kafka().voters == {CONTROLLER}
        assert found.status.controller == CONTROLLER
        assert "controller.quorum.voters" not in settings(local, "broker-0")
        assert "process.roles=broker\n" in settings(local, "broker-0")
        assert "process.roles=controller\n" in settings(local, f"controller-{CONTROLLER}")
        producer = Producer({"bootstrap.servers": local.bootstrap})
        producer.produce("orders", b"one")
        assert producer.flush(60) == 0
        assert "kafka_controller_kafkacontroller_activecontrollercount 1.0" in metrics(
            local, CONTROLLER
        )
        assert "activecontrollercount" not in metrics(local, 0)

        del local.spec["controllers"]
        report = local.step()
        assert "dedicated controllers cannot be added" in report.problems[0]
        local.die()  # the next runtime has only the state on disk to compare with
        report = local.step()
        assert report.clusters[KEY].pids == found.pids
        assert "refuse: spec.controllers: dedicated controllers" in report.clusters[KEY].plan[-1]
        local.runtime.stop_brokers()  # the broker first: it needs the controller to stop
        assert (node(local, "broker-0") / "data-0" / ".kafka_cleanshutdown").exists()


def node(local: Local, name: str) -> Path:
    return local.state / "default.main" / name


def settings(local: Local, name: str) -> str:
    return (node(local, name) / "server.properties").read_text()


def metrics(local: Local, number: int) -> str:
    port = local.runtime.clusters[KEY].platform.ledger.brokers[number].admin_port
    return httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=30.0).text
