"""decide_roll over any state: it never breaks availability, and it always makes progress.

`simulate` carries decisions out on a small model of a cluster: a restarted broker is down,
starts, catches up, and leads only after an election.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek_operator.kafka.actions import Elect, Reason, Restart, Wait
from odradek_operator.kafka.observed import Partition, Phase
from odradek_operator.kafka.roll import NothingToRestart, RollBroker, RollView, decide_roll
from odradek_protocol.ids import TopicPartition
from operator_tests.worlds import NOW

CHANGED = Reason("ConfigChanged", "x changed")


@st.composite
def views(draw: st.DrawFn, healthy: bool = False) -> RollView:
    size = draw(st.integers(1, 7))
    ids = list(range(size))
    racks = draw(st.integers(1, 3))
    phases = st.just(Phase.READY) if healthy else st.sampled_from([Phase.READY] * 5 + list(Phase))
    brokers = {
        b: RollBroker(b, "abc"[b % racks], draw(phases), draw(st.sampled_from([None, CHANGED])))
        for b in ids
    }
    partitions = []
    for n in range(draw(st.integers(0, 8))):
        replicas = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=4, unique=True))
        isr = replicas if healthy else draw(st.lists(st.sampled_from(replicas), unique=True))
        leader = draw(st.sampled_from(isr)) if isr else -1
        partitions.append(
            Partition(TopicPartition("t", n), leader, tuple(replicas), frozenset(isr),
                      draw(st.integers(1, 4)))
        )  # fmt: skip
    return RollView(
        NOW,
        brokers,
        tuple(partitions),
        controller=draw(st.sampled_from(ids)) if healthy else draw(st.sampled_from([-1, *ids])),
        voters=frozenset(ids[: draw(st.sampled_from([1, 3]))]),
        max_unavailable=draw(st.integers(1, 3)),
        preferred_leaders=draw(st.booleans()),
    )


def live(view: RollView, partition: Partition) -> frozenset[int]:
    return partition.isr & view.ready


@settings(max_examples=500, deadline=None)
@given(views())
def test_no_restart_takes_a_partition_below_min_isr(view: RollView) -> None:
    decision = decide_roll(view)
    if not isinstance(decision, Restart):
        return
    going = set(decision.brokers)
    assert going <= set(view.pending)
    for partition in view.partitions:
        before, after = live(view, partition), live(view, partition) - going
        if after == before:
            continue  # it serves without them already
        replicas = len(partition.replicas)
        if replicas > partition.min_isr:
            assert len(after) >= partition.min_isr, partition
        elif replicas > 1:
            assert len(after) == replicas - 1, partition
            assert partition.id in decision.unavailable
        else:
            assert partition.id in decision.unavailable


@settings(max_examples=500, deadline=None)
@given(views())
def test_which_brokers_restart_together(view: RollView) -> None:
    decision = decide_roll(view)
    if not isinstance(decision, Restart):
        return
    ready = [b for b in decision.brokers if view.brokers[b].phase is Phase.READY]
    if not ready:
        return  # brokers that keep crashing serve no client: all may restart
    assert len(ready) <= view.max_unavailable
    assert len({view.brokers[b].rack for b in ready}) == 1
    for partition in view.partitions:
        assert len(set(partition.replicas) & set(ready)) <= 1, "two replicas of one partition"
    if view.controller in ready:
        assert view.pending == ready == [view.controller], "the active controller goes last"
    left = view.voters & view.ready - set(ready)
    if view.voters & set(ready):
        assert len(left) >= min(len(view.voters) // 2 + 1, len(view.voters) - 1)


@settings(max_examples=500, deadline=None)
@given(views())
def test_steps_are_taken_from_a_settled_cluster_only(view: RollView) -> None:
    decision = decide_roll(view)
    if isinstance(decision, Restart) and view.ready >= set(decision.brokers):
        assert view.ready == view.brokers.keys()
        for partition in view.partitions:
            missing = set(partition.replicas) - partition.isr
            assert all(view.brokers[b].pending for b in missing)
            if view.preferred_leaders and partition.replicas[0] in live(view, partition):
                assert partition.leader == partition.replicas[0]


@settings(max_examples=300, deadline=None)
@given(views(healthy=True))
def test_a_healthy_cluster_is_rolled_to_the_end(view: RollView) -> None:
    """Progress: no Wait in a healthy cluster, and every broker restarts once."""
    restarted: list[int] = []
    for _ in range(3 * len(view.brokers) + 3):
        decision = decide_roll(view)
        if isinstance(decision, NothingToRestart):
            break
        assert not isinstance(decision, Wait), decision
        if isinstance(decision, Elect):
            view = _elected(view, decision)
        else:
            restarted += decision.brokers
            view = _restarted(view, decision)
    assert isinstance(decide_roll(view), NothingToRestart)
    assert not view.pending
    assert len(restarted) == len(set(restarted))
    if view.preferred_leaders:
        assert all(p.leader == p.replicas[0] for p in view.partitions)


def _elected(view: RollView, decision: Elect) -> RollView:
    moved = [
        replace(p, leader=p.replicas[0]) if p.id in decision.partitions else p
        for p in view.partitions
    ]
    return replace(view, partitions=tuple(moved))


def _restarted(view: RollView, decision: Restart) -> RollView:
    """Restarted and in sync again; other replicas keep the leaderships where there are any."""
    brokers = {
        b: replace(broker, pending=None) if b in decision.brokers else broker
        for b, broker in view.brokers.items()
    }
    moved = []
    for p in view.partitions:
        others = [r for r in p.replicas if r not in decision.brokers]
        left = p.leader in decision.brokers and bool(others)
        moved.append(replace(p, leader=others[0] if left else p.leader))
    others_in_charge = sorted(view.brokers.keys() - set(decision.brokers))
    controller = view.controller
    if controller in decision.brokers and others_in_charge:
        controller = others_in_charge[0]
    return replace(view, brokers=brokers, partitions=tuple(moved), controller=controller)


@settings(max_examples=300, deadline=None)
@given(views())
def test_every_wait_says_what_for(view: RollView) -> None:
    decision = decide_roll(view)
    if isinstance(decision, Wait):
        assert decision.reason.message
        assert decision.brokers or decision.reason.code == "NoController"
