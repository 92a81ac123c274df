"""The local runtime with real brokers: starts, crashes, rolls, scale, topics, wrong manifests."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from odradek_operator.local.runtime import LocalRuntime, RuntimeBusyError, running_pid
from odradek_testkit.load import Load
from operator_tests.local.local import KEY, Local, PlainLocal


def restarts(local: Local) -> list[list[int]]:
    """Which brokers restarted together, in order."""
    found = []
    for line in local.done:
        if line.startswith("restart"):
            names = line.split(":")[0].replace("and", ",").replace("restart", "")
            names = names.replace("brokers", "").replace("broker", "").split("(")[0]
            found.append([int(n) for n in names.split(",")])
    return found


def test_topics_from_manifests(tmp_path: Path) -> None:
    with Local(tmp_path, brokers=3) as local:
        local.topic("orders", partitions=3, config={"retention.ms": 1000})
        local.topic("kept", partitions=1, deletionPolicy="Retain")
        found = local.settle()
        assert {t.topic_name: t.partitions for t in found.topics.values()} == {
            "orders": 3,
            "kept": 1,
        }
        local.topics["orders"] |= {"partitions": 5, "config": {}, "replicationFactor": 2}
        local.settle()
        kafka = local.kafka()
        assert kafka.topics["orders"].config == {}
        assert [len(p.replicas) for p in kafka.partitions if p.id.topic == "orders"] == [2] * 5
        local.topics.clear()
        local.settle()
        assert list(local.kafka().topics) == ["kept"], "Delete is deleted, Retain stays"
        local.topic("kept", partitions=1)
        report = local.until(lambda r: bool(r.clusters[KEY].plan))
        assert "already exists; set spec.adopt" in report.clusters[KEY].plan[0]
        local.topics["kept"]["adopt"] = True
        local.settle()


def test_a_broker_that_is_killed_comes_back(tmp_path: Path) -> None:
    with PlainLocal(tmp_path, brokers=3) as local:
        local.topic("orders", partitions=3)
        local.settle()
        old = local.kill(1)
        local.until(lambda r: r.clusters[KEY].pids.get(1) not in (None, old))
        found = local.settle()
        assert found.status.preferred_leaders_percent == 100


def test_settings_in_the_environment_of_the_caller_do_not_reach_the_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They override a broker's file: both brokers would bind the same port, and one would fail."""
    monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://127.0.0.1:1")
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "not a number")
    with PlainLocal(tmp_path, brokers=2) as local:
        local.settle()
        assert local.kafka().live == {0, 1}


def test_a_roll_under_load(tmp_path: Path) -> None:
    """Static settings change: one after the other, controller last, no write is lost or refused."""
    with Local(tmp_path, brokers=4) as local:
        local.topic("orders", partitions=6, config={"min.insync.replicas": 2})
        before = local.settle()
        local.done.clear()
        with Load(local, "orders", partitions=6, per_second=300) as load:
            local.spec["config"] = {"num.partitions": 2}
            after = local.settle()
            load.wait_for_acks(100)
        load.check()
        assert [write.error for write in load.history.errors()] == []
        rolled = restarts(local)
        assert sorted(rolled) == [[0], [1], [2], [3]]
        assert rolled[-1] == [before.status.controller], local.done
        assert after.status.preferred_leaders_percent == 100
        assert not before.pids.items() & after.pids.items(), "every broker is another process"


def test_a_dynamic_setting_needs_no_restart(tmp_path: Path) -> None:
    with Local(tmp_path, brokers=1) as local:
        pids = local.settle().pids
        local.spec["config"] = {"log.cleaner.threads": 2}
        assert local.settle().pids == pids
        assert any("log.cleaner.threads=2" in line for line in local.done)
        local.spec["config"] = {}
        assert local.settle().pids == pids
        assert any("reset to its default" in line for line in local.done)


def test_scale_up_and_down(tmp_path: Path) -> None:
    """The brokers that leave are drained first; the data of the others is where it was."""
    with Local(tmp_path, brokers=3, rebalance="auto") as local:
        local.topic("orders", partitions=6)
        local.settle()
        local.spec["brokers"] = 5
        local.settle()
        kafka = local.kafka()
        assert kafka.live == {0, 1, 2, 3, 4}
        assert any(4 in p.replicas for p in kafka.partitions), "rebalance: auto fills them"
        assert local.runtime.report.clusters[KEY].status.brokers[3].rack == "a"
        local.spec["brokers"] = 3
        local.settle()
        kafka = local.kafka()
        assert set(kafka.registered) == {0, 1, 2}
        assert all(set(p.replicas) == set(p.isr) == {0, 1, 2} for p in kafka.partitions)
        kept = local.state / "default.main" / "broker-4" / "data-0"
        assert kept.is_dir(), "deletionPolicy: Retain"
        local.spec["brokers"] = 4
        local.settle()
        assert local.kafka().live == {0, 1, 2, 3}, "and its volume is used again"


def test_all_racks_are_exchanged(tmp_path: Path) -> None:
    """The three voters leave, and the three new brokers become voters, one at a time."""
    with Local(tmp_path, brokers=3) as local:
        local.topic("orders", partitions=3, replicationFactor=2)
        local.settle()
        local.spec["racks"] = {"names": ["d", "e", "f"]}
        local.settle(180)
        kafka = local.kafka()
        assert kafka.registered == {3: "d", 4: "e", 5: "f"}
        assert kafka.voters == {3, 4, 5}
        assert not any(line.startswith("refuse") for line in local.done), local.done


def test_the_racks_of_two_brokers_are_exchanged(tmp_path: Path) -> None:
    """One of two votes, and it leaves: another one becomes a voter before that."""
    with Local(tmp_path, brokers=2) as local:
        local.settle()
        local.spec["racks"] = {"names": ["d", "e"]}
        local.settle(180)
        kafka = local.kafka()
        assert kafka.registered == {2: "d", 3: "e"}
        assert kafka.voters <= {2, 3}


def test_a_runtime_that_died_finds_its_brokers(tmp_path: Path) -> None:
    with PlainLocal(tmp_path, brokers=3) as local:
        pids = local.settle().pids
        local.die()
        assert local.settle().pids == pids


def test_one_runtime_at_a_time(tmp_path: Path) -> None:
    with Local(tmp_path) as local:
        assert running_pid(local.state) is not None
        with pytest.raises(RuntimeBusyError, match="is already running in"):
            LocalRuntime([local.manifests], local.state).acquire()


def test_a_wrong_manifest_changes_nothing(tmp_path: Path) -> None:
    with Local(tmp_path, brokers=1) as local:
        pids = local.settle().pids
        local.spec["brokers"] = 0
        report = local.until(lambda r: bool(r.problems))
        assert report.problems == [
            "all.yaml: KafkaCluster default/main: spec.brokers: expected an integer of at least 1"
        ]
        assert report.clusters[KEY].pids == pids
        local.spec["brokers"] = 1
        local.topics["lost"] = {"cluster": {"name": "elsewhere"}}
        report = local.until(lambda r: bool(r.problems) and "elsewhere" in r.problems[0])
        assert "KafkaCluster default/elsewhere does not exist" in report.problems[0]


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with PlainLocal(tmp_path, brokers=1) as local, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        local.annotations["odradek.dev/local-port"] = str(port)
        report = local.until(
            lambda r: any(
                c.reason == "BrokerCrashed"
                for found in r.clusters.values()
                for c in found.status.conditions
            )
        )
        conditions = {c.type: c for c in report.clusters[KEY].status.conditions}
        assert str(port) in conditions["Degraded"].message
        assert conditions["Ready"].status == "False"


def test_a_setting_that_no_broker_can_run_with_stops_the_roll_at_the_first(tmp_path: Path) -> None:
    """1. one broker crashes  2. the others stay  3. the spec is corrected  4. ready."""
    with Local(tmp_path, brokers=3) as local:
        local.topic("orders", partitions=3)
        pids = local.settle().pids
        local.done.clear()
        local.spec["config"] = {"num.partitions": "many"}
        report = local.until(
            lambda r: any(c.reason == "BrokerCrashed" for c in r.clusters[KEY].status.conditions)
        )
        (degraded,) = [c for c in report.clusters[KEY].status.conditions if c.type == "Degraded"]
        assert "num.partitions" in degraded.message
        rolled = restarts(local)
        assert len(rolled) == 1
        (crashed,) = rolled[0]
        rolling = report.clusters[KEY].status.rolling
        assert rolling is not None
        assert sorted(rolling.remaining) == sorted({0, 1, 2} - {crashed})
        local.spec["config"] = {}
        after = local.settle()
        assert {b: p for b, p in after.pids.items() if b != crashed} == {
            b: p for b, p in pids.items() if b != crashed
        }, "nobody else was touched"


def test_a_runtime_that_dies_in_the_middle_of_a_roll(tmp_path: Path) -> None:
    """The next runtime continues; no broker restarts twice; topics with one replica are named."""
    with Local(tmp_path, brokers=3) as local:
        local.topic("orders", partitions=3, replicationFactor=3)
        local.topic("lonely", partitions=1, replicationFactor=1)
        local.settle()
        local.done.clear()
        local.annotations["odradek.dev/restart"] = "now"
        named: set[str] = set()
        deaths = 0
        while not local.step().settled or not local.done:
            rolling = local.runtime.report.clusters[KEY].status.rolling
            named |= set(rolling.unavailable) if rolling else set()
            if len(restarts(local)) > deaths:
                deaths += 1
                local.die()
        assert deaths == 3
        assert sorted(restarts(local)) == [[0], [1], [2]]
        assert named == {"lonely-0"}
