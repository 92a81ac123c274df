"""DiskPressure: disks that fill up, directories that fail, brokers that ended because of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek_api.base import Condition, instant
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_operator.kafka.actions import Restart, Wait
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.kafka.disks import reserve_bytes, size, transitions
from odradek_operator.kafka.make_plan import make_plan
from odradek_operator.kafka.observed import Ended, LogDir, Observed, Phase
from odradek_operator.kafka.status import cluster_status
from operator_tests.worlds import NOW, cluster, running, spread, with_phase

MB, GB = 1 << 20, 1 << 30
THREE = cluster(brokers=3)
TOPIC = spread("orders", 3, range(3))
ENDED = Ended(
    75, "it ended with exit code 75: odradek: /data/0: no space left; next start after 4 s"
)


def with_dirs(observed: Observed, broker: int, *dirs: LogDir) -> Observed:
    assert observed.kafka is not None
    found = {**observed.kafka.log_dirs, broker: dirs}
    return replace(observed, kafka=replace(observed.kafka, log_dirs=found))


def silent(observed: Observed, broker: int) -> Observed:
    assert observed.kafka is not None
    found = {b: dirs for b, dirs in observed.kafka.log_dirs.items() if b != broker}
    return replace(observed, kafka=replace(observed.kafka, log_dirs=found))


def ended(observed: Observed, broker: int, phase: Phase, how: Ended = ENDED) -> Observed:
    found = replace(observed.brokers[broker], phase=phase, ended=how, detail=how.words)
    return silent(replace(observed, brokers={**observed.brokers, broker: found}), broker)


def status(
    observed: Observed,
    before: KafkaClusterStatus | None = None,
    desired: DesiredCluster = THREE,
) -> KafkaClusterStatus:
    return cluster_status(desired, observed, make_plan(desired, observed), before)


def pressure(found: KafkaClusterStatus) -> Condition:
    (condition,) = [c for c in found.conditions if c.type == "DiskPressure"]
    return condition


LOW = with_dirs(running(THREE, *TOPIC), 2, LogDir("/data/0", False, 2 * GB, 12 * MB))


def test_a_disk_that_fills_up() -> None:
    found = pressure(status(LOW))
    assert (found.status, found.reason) == ("True", "LowSpace")
    assert found.message == (
        f"broker 2: /data/0 has 12 MiB free of 2.0 GiB (reserve 64 MiB) since {instant(NOW)}: "
        "the broker refuses producers until there is space; other brokers lead where possible; "
        "expand its file system (on Kubernetes: spec.storage.size) or delete data"
    )


def test_a_fenced_broker_is_not_ready_for_that_reason() -> None:
    starting = status(with_phase(LOW, Phase.STARTING, 2))
    (ready,) = [c for c in starting.conditions if c.type == "Ready"]
    assert (
        ready.message
        == "2 of 3 brokers are ready; not ready: 2; broker 2: see condition DiskPressure"
    )


def test_it_ends_where_the_broker_ends_it() -> None:
    """At 1.25 times the reserve, so that the state does not change with every byte."""
    first = status(LOW)
    for free, expected in ((70 * MB, "True"), (80 * MB, "False")):
        seen = with_dirs(LOW, 2, LogDir("/data/0", False, 2 * GB, free))
        assert pressure(status(seen, first)).status == expected
        assert pressure(status(seen)).status == "False", "it does not begin there"


def test_an_apache_broker_refuses_nobody_before_its_disk_is_full() -> None:
    desired = cluster(brokers=3, engine="apache")
    seen = with_dirs(running(desired, *TOPIC), 1, LogDir("/data/0", False, 2 * GB, 12 * MB))
    found = pressure(status(seen, desired=desired))
    assert found.status == "True"
    assert "Apache Kafka stops using it when it is full" in found.message


def test_since_when_is_remembered() -> None:
    first = status(LOW)
    later = status(replace(LOW, now=NOW + 60), first)
    assert pressure(later).message == pressure(first).message
    assert [d.since for d in later.disks] == [instant(NOW)]
    assert status(replace(LOW, now=NOW + 60), later) == later, "a status that does not change rests"


def test_it_is_over_when_there_is_room() -> None:
    first = status(LOW)
    after = status(running(THREE, *TOPIC), first)
    assert (pressure(after).status, after.disks) == ("False", [])
    assert transitions([], first.disks)[0][0].code == "LowSpace"
    ((reason, warning),) = transitions(first.disks, after.disks)
    assert (str(reason), warning) == ("broker 2: /data/0 has enough free space again", False)
    assert transitions(first.disks, status(LOW, first).disks) == []


def test_a_directory_of_several_is_offline() -> None:
    desired = cluster(brokers=3, storage={"volumes": 2})
    dirs = LogDir("/data/0", False, 10 * GB, 5 * GB), LogDir("/data/1", True)
    found = pressure(status(with_dirs(running(desired, *TOPIC), 1, *dirs), desired=desired))
    assert (found.status, found.reason) == ("True", "DirectoryOffline")
    assert found.message.startswith(f"broker 1: /data/1 has been offline since {instant(NOW)}")
    assert "the broker then restarts by itself" in found.message


def test_a_broker_that_ended_because_its_disk_was_full() -> None:
    """Shown while it waits for its next start, and until it is ready again; not longer."""
    crashed = status(ended(running(THREE, *TOPIC), 2, Phase.CRASHED))
    found = pressure(crashed)
    assert (found.status, found.reason) == ("True", "BrokerEnded")
    assert found.message == f"broker 2: {ENDED.words}"
    (degraded,) = [c for c in crashed.conditions if c.type == "Degraded"]
    assert ENDED.words in degraded.message
    (ready,) = [c for c in crashed.conditions if c.type == "Ready"]
    assert ready.message.startswith(
        "2 of 3 brokers are ready; not ready: 2; broker 2: it ended with"
    )
    assert crashed.brokers[2].not_ready == ENDED.words
    starting = status(ended(running(THREE, *TOPIC), 2, Phase.STARTING), crashed)
    assert pressure(starting).message == found.message
    assert transitions(crashed.disks, starting.disks) == []
    again = status(running(THREE, *TOPIC), starting)
    assert pressure(again).status == "False"
    assert [str(reason) for reason, _ in transitions(starting.disks, again.disks)] == [
        "broker 2 is running again"
    ]


def test_the_exit_code_of_an_ended_broker_is_kept_up_to_date() -> None:
    """Its disk was replaced by an unusable one: another exit code, the same reason."""
    first = status(ended(running(THREE, *TOPIC), 2, Phase.CRASHED))
    other = Ended(1, "it ended with exit code 1: no directory can be used; next start after 8 s")
    found = status(ended(running(THREE, *TOPIC), 2, Phase.CRASHED, other), first)
    assert pressure(found).message == f"broker 2: {other.words}"
    assert found.disks[0].since == first.disks[0].since


def test_a_broker_that_was_killed_has_no_trouble_with_its_disk() -> None:
    killed = Ended(-9, "it was ended by SIGKILL; next start after 1 s")
    found = pressure(status(ended(running(THREE, *TOPIC), 2, Phase.CRASHED, killed)))
    assert found.status == "False"


def test_nothing_is_concluded_from_missing_answers() -> None:
    first = status(LOW)
    assert status(silent(LOW, 2), first).disks == first.disks
    nobody = replace(LOW, kafka=None, unreachable="no broker answers")
    assert status(nobody, first).disks == first.disks
    assert pressure(status(nobody)).status == "Unknown"


def test_many_disks_are_counted() -> None:
    seen = running(cluster(brokers=8), *TOPIC)
    for broker in range(8):
        seen = with_dirs(seen, broker, LogDir("/data/0", False, 2 * GB, 12 * MB))
    found = status(seen, desired=cluster(brokers=8))
    assert pressure(found).message.endswith("3 more in status.disks")
    assert len(found.disks) == 8


@pytest.mark.parametrize(
    ("config", "total", "expected"),
    [
        ({}, 10 * GB, 64 * MB),
        ({}, 100 * MB, 5 * MB),
        ({"odradek.log.dir.reserve.bytes": 10 * MB}, 10 * GB, 10 * MB),
        ({"odradek.log.dir.reserve.bytes": 0}, 10 * GB, 0),
    ],
)
def test_the_reserve(config: dict[str, int], total: int, expected: int) -> None:
    assert reserve_bytes(cluster(brokers=3, config=config), 0, total) == expected


def test_a_reserve_of_zero_says_nothing() -> None:
    desired = cluster(brokers=3, config={"odradek.log.dir.reserve.bytes": 0})
    seen = with_dirs(running(desired, *TOPIC), 2, LogDir("/data/0", False, 2 * GB, 0))
    assert pressure(status(seen, desired=desired)).status == "False"


def test_sizes() -> None:
    given = (0, 900, 5 * MB, 12 * MB + 300_000, 64 * MB, 1000 * MB, 10 * GB, 3 << 40)
    assert [size(one) for one in given] == [
        "0 bytes", "900 bytes", "5.0 MiB", "12 MiB", "64 MiB", "1.0 GiB", "10 GiB", "3.0 TiB",
    ]  # fmt: skip


# -- rolls -----------------------------------------------------------------------------------------

CHANGED = cluster(brokers=3, config={"num.partitions": 4})


def test_a_roll_does_not_go_on_while_a_broker_is_out_for_storage() -> None:
    """Broker 2 was rolled already, and its disk is full now: 0 and 1 are not restarted."""
    before = running(THREE, *[replace(p, isr=p.isr - {2}, leader=0) for p in TOPIC])
    rolled = replace(before.brokers[2], started_with=CHANGED.brokers[2].settings)
    seen = replace(before, brokers={**before.brokers, 2: rolled})
    for phase in (Phase.CRASHED, Phase.STARTING):
        plan = make_plan(CHANGED, ended(seen, 2, phase))
        assert not [a for a in plan if isinstance(a, Restart)]
        assert [a.brokers for a in plan if isinstance(a, Wait)] == [(2,)]
    # Ready again, and not yet in sync: one of two directories is offline, for example.
    plan = make_plan(CHANGED, seen)
    assert not [a for a in plan if isinstance(a, Restart)]
    (wait,) = [a for a in plan if isinstance(a, Wait)]
    assert wait.reason.code == "ReplicaNotInSync"


def test_nobody_is_restarted_because_of_a_disk() -> None:
    offline = with_dirs(running(THREE, *TOPIC), 1, LogDir("/data/0", True))
    for seen in (LOW, offline, ended(running(THREE, *TOPIC), 2, Phase.CRASHED)):
        assert not [a for a in make_plan(THREE, seen) if isinstance(a, Restart)]


@pytest.mark.parametrize("phase", [Phase.CRASHED, Phase.STARTING])
def test_a_volume_that_has_grown_is_why_a_broker_without_room_is_restarted(phase: Phase) -> None:
    """It ended, or waits for room: some file systems get it only at a restart."""
    seen = ended(running(THREE, *TOPIC, live=frozenset({0, 1})), 2, phase)
    why = "the file system of data-0-main-c-0 is expanded by a restart"
    grown = replace(seen.brokers[2], wants_restart=why)
    plan = make_plan(THREE, replace(seen, brokers={**seen.brokers, 2: grown}))
    (restart,) = [a for a in plan if isinstance(a, Restart)]
    assert restart.brokers == (2,)
    assert why in str(restart.reason)


def test_a_broker_that_is_about_to_be_ready_is_not_restarted_for_its_volume() -> None:
    seen = with_phase(running(THREE, *TOPIC), Phase.STARTING, 2)  # unfenced already
    grown = replace(seen.brokers[2], wants_restart="its file system is expanded by a restart")
    plan = make_plan(THREE, replace(seen, brokers={**seen.brokers, 2: grown}))
    assert not [a for a in plan if isinstance(a, Restart)]
