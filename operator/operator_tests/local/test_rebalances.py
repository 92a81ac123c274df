"""KafkaRebalances on the local runtime: real brokers of both engines, clients that write.

All data is on two of four brokers. The runtime proposes, waits for the approval, moves, is killed
during the moves, and continues. Nothing is lost, and no throttle is left.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek_api.base import RESTART_ANNOTATION
from odradek_api.kafka_rebalance.spec import APPROVE_ANNOTATION
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_operator.kafka.observed import Partition
from odradek_operator.local.runtime import LocalRuntime
from odradek_protocol.client import KafkaClient
from odradek_testkit.load import Load
from operator_tests.local.local import KEY, Local
from operator_tests.local.skewed import (
    ENGINES,
    PARTITIONS,
    acknowledgements,
    deviation,
    propose,
    skewed_cluster,
    throttled,
)

NAME = "default/even"


def status(local: Local) -> KafkaRebalanceStatus:
    found = local.runtime.report.clusters[KEY].rebalances
    return found.get(NAME, KafkaRebalanceStatus())


def until_phase(local: Local, *phases: str, deadline_s: float = 180) -> KafkaRebalanceStatus:
    local.until(lambda _: status(local).phase in phases, deadline_s)
    return status(local)


def moving(local: Local) -> list[Partition]:
    return [p for p in local.kafka().partitions if p.moving]


@pytest.mark.timeout(500)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_proposal_is_approved_and_carried_out_under_load(tmp_path: Path, engine: str) -> None:
    with skewed_cluster(tmp_path, engine) as local:
        with KafkaClient(local.bootstrap) as client:
            before, _ = propose(client)
            local.rebalance("even", throttle="20M", replicasMax=PARTITIONS + 3)
            local.write()
            planning = LocalRuntime([local.manifests], local.state)
            printed = planning.plan().clusters[KEY].plan
            planning.release()
            assert any(line.startswith("propose to move for KafkaRebalance") for line in printed)
            assert any(re.match(r"propose \S+-\d+: [\d,]+ → [\d,]+, ", line) for line in printed)
            found = until_phase(local, "Proposed")
            assert found.moves > 0
            assert found.bytes > 0
            assert found.first_moves
            goals = {g.name: (g.before, g.after) for g in found.goals}
            assert goals.keys() >= {"rack-aware", "disk", "bytes-in"}
            assert goals["replica-capacity"] == (2, 0)  # 24 on two of the brokers
            local.rebalance_annotations["even"] = {APPROVE_ANNOTATION: "not-this-one"}
            for _ in range(3):
                local.step()
            assert status(local).phase == "Proposed"
            with Load(local, "orders", partitions=PARTITIONS, per_second=300) as load:
                local.rebalance_annotations["even"] = {APPROVE_ANNOTATION: found.proposal}
                until_phase(local, "Moving")
                local.until(lambda _: bool(throttled(client)) or status(local).phase == "Done")
                local.die()  # the next runtime knows what is on disk
                done = until_phase(local, "Done")
                load.wait_for_acks(100)
            after, again = propose(client)
            left = throttled(client)
        load.check()
        assert [write.error for write in load.history.errors()] == []
        assert done.progress is not None
        assert done.progress.done == found.moves
        assert not done.throttled
        print(
            f"\n{engine}: deviation of bytes per broker {deviation(before):.0%} → "
            f"{deviation(after):.0%}, {done.moves} partitions moved, {acknowledgements(load)}"
        )
        assert deviation(before) > 0.9
        assert deviation(after) < 0.2
        assert left == []
        assert again.bytes < found.bytes / 10
        assert any(line.startswith("throttle moves to 20 MB/s") for line in local.done)


@pytest.mark.timeout(300)
def test_it_is_cancelled_and_moves_back_or_stays(tmp_path: Path) -> None:
    """1. moves begin at a throttle under which they cannot end  2. `back`: they stop, and every
    partition has its old replicas  3. the resource is deleted during a second attempt: the moves
    stop, and neither a throttle nor a file is left."""
    with skewed_cluster(tmp_path) as local, KafkaClient(local.bootstrap) as client:
        first = {p.id: p.replicas for p in local.kafka().partitions}
        local.rebalance("even", throttle="1k", autoApprove=True)
        local.until(lambda _: bool(moving(local)), 60)
        assert throttled(client)
        local.rebalance("even", throttle="1k", autoApprove=True, cancel="back")
        found = until_phase(local, "Cancelled")
        assert found.back
        assert {p.id: p.replicas for p in local.kafka().partitions} == first
        assert throttled(client) == []

        local.rebalance("again", throttle="1k", autoApprove=True)
        local.until(lambda _: bool(moving(local)), 60)
        del local.rebalances["again"]
        local.until(
            lambda _: "default/again" not in local.runtime.clusters[KEY].platform.ledger.rebalances
        )
        assert moving(local) == []
        assert throttled(client) == []
        assert list(local.state.rglob("default.again.json")) == []


@pytest.mark.timeout(300)
def test_a_roll_waits_for_moves_and_moves_wait_for_a_roll(tmp_path: Path) -> None:
    """The moves cannot end at their throttle: the restart of the brokers waits until they are
    cancelled, and names them."""
    with skewed_cluster(tmp_path) as local:
        local.rebalance("even", throttle="1k", autoApprove=True)
        local.until(lambda _: "ballast" in {p.id.topic for p in moving(local)}, 60)
        before = dict(local.runtime.report.clusters[KEY].pids)
        local.annotations[RESTART_ANNOTATION] = "now"
        local.until(
            lambda report: any(
                "will restart when the moves of KafkaRebalance default/even" in line
                for line in report.clusters[KEY].plan
            )
        )
        for _ in range(5):
            local.step()
        assert local.runtime.report.clusters[KEY].pids == before
        progress = status(local).progress
        assert progress is not None
        assert progress.moving > 0
        local.rebalance("even", throttle="1k", autoApprove=True, cancel="keep")
        until_phase(local, "Cancelled")
        local.settle(180)
        assert not set(local.runtime.report.clusters[KEY].pids.values()) & set(before.values())
