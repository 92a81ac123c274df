"""The states of a KafkaRebalance, and the plan of its moves."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from odradek_api.base import Resource, instant
from odradek_api.kafka_rebalance.spec import CANCEL_ANNOTATION, KafkaRebalanceSpec
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_operator.kafka.actions import MoveDirectories, Reassign, Throttle, Unthrottle, Wait
from odradek_operator.kafka.balance.document import DirectoryChange, Move, Proposal
from odradek_operator.kafka.balance.execution import FOLLOWER_RATE, LEADER_RATE, Stage
from odradek_operator.kafka.make_plan import make_plan
from odradek_operator.kafka.observed import BrokerSetting, LogSizes, ObservedKafka, SizedDir
from odradek_operator.kafka.rebalance_states import (
    WantedRebalance,
    after_moves,
    after_request,
    check_due,
    due,
    execution_of,
    lost,
    timed,
    wanted_of,
)
from odradek_operator.kafka.rebalancing import (
    Execution,
    directory_stages,
    plan_execution,
    standing,
)
from odradek_protocol.ids import TopicPartition
from operator_tests.worlds import NOW, P, cluster, running

MOVE = Move("orders", 0, (0, 1, 2), (0, 1, 3), 10, 1.0, "replica 2 → 3: disk")
EXECUTION = Execution("default/even", [MOVE], 50e6)
RATES = {n: BrokerSetting("50000000", read_only=False) for n in (LEADER_RATE, FOLLOWER_RATE)}


def wanted(**fields: object) -> WantedRebalance:
    given = {"cluster": {"name": "main"}, **fields}
    return WantedRebalance("default/even", msgspec.convert(given, KafkaRebalanceSpec))


def kafka(text: str, **fields: object) -> ObservedKafka:
    observed = running(cluster(brokers=4), P(text), **fields)
    assert observed.kafka is not None
    return observed.kafka


def test_moves_begin_only_with_the_throttle_in_place() -> None:
    before = kafka("orders-0: 0 1 2 | 0 1 2")
    (throttle,) = plan_execution(EXECUTION, before)
    assert isinstance(throttle, Throttle)
    assert (throttle.brokers, throttle.rate) == ((0, 1, 2, 3), 50_000_000)
    topics = {"orders": replace(before.topics["orders"], config=throttle.topics["orders"])}
    with_it = replace(before, topics=topics, settings=dict.fromkeys(before.settings, RATES))
    (move,) = plan_execution(EXECUTION, with_it)
    assert isinstance(move, Reassign)
    assert move.moves == {TopicPartition("orders", 0): (0, 1, 3)}
    (held,) = plan_execution(EXECUTION, with_it, "the brokers are rolled")
    assert isinstance(held, Unthrottle)  # restarted replicas catch up at full speed
    done = replace(with_it, partitions=(P("orders-0: 0 1 3 | 0 1 3"),))
    (end,) = plan_execution(EXECUTION, done)
    assert isinstance(end, Unthrottle)
    assert not standing(EXECUTION, done).finished
    assert standing(EXECUTION, replace(before, partitions=done.partitions)).finished


def test_a_broker_that_is_away_keeps_the_rebalance_open() -> None:
    """Its throttle cannot be observed, so it does not count as removed."""
    after = kafka("orders-0: 0 1 3 | 0 1 3")
    away = replace(after, settings={b: s for b, s in after.settings.items() if b != 2})
    assert not standing(EXECUTION, away).finished
    (wait,) = plan_execution(EXECUTION, away)
    assert isinstance(wait, Wait)
    assert "throttle of broker 2 cannot be removed yet" in wait.reason.message


def test_no_restart_while_replicas_are_copied() -> None:
    desired = cluster(brokers=4)
    moving = replace(P("orders-0: 0 1 3 2 | 0 1 2"), adding=frozenset({3}), removing=frozenset({2}))
    observed = running(desired, moving)
    changed = cluster(brokers=4, annotations={"odradek.dev/restart": "now"})
    (wait, *rest) = make_plan(changed, observed, executions=[EXECUTION])
    assert isinstance(wait, Wait)
    assert wait.reason.code == "MovesUnderWay"
    assert all(isinstance(action, Wait) for action in rest)


def test_a_lost_document_removes_any_throttle() -> None:
    status, removal = lost("default/even", KafkaRebalanceStatus(phase="Moving", proposal="abc"))
    seen = kafka("orders-0: 0 1 2 | 0 1 2")
    with_it = replace(seen, settings=dict.fromkeys(seen.settings, RATES))
    (action,) = plan_execution(removal, with_it)
    assert isinstance(action, Unthrottle)
    assert action.brokers == (0, 1, 2, 3)
    assert after_moves(status, standing(removal, with_it), NOW).phase == "Cancelling"
    assert after_moves(status, standing(removal, seen), NOW).phase == "Failed"


def test_directories_are_followed() -> None:
    place = TopicPartition("orders", 0)
    change = DirectoryChange("orders", 0, 1, "/a", "/b", 10, "the directory is removed")

    def stage(*dirs: SizedDir) -> Stage:
        sizes = LogSizes(0.0, {1: dirs})
        return directory_stages(Execution("x", (), 1.0, [change], sizes=sizes))[1, place]

    here = SizedDir("/a", replica_bytes={place: 10})
    assert stage(here, SizedDir("/b")) is Stage.PENDING
    assert stage(here, SizedDir("/b", future_bytes={place: 3})) is Stage.MOVING
    assert stage(SizedDir("/a"), SizedDir("/b", replica_bytes={place: 10})) is Stage.DONE
    assert stage(SizedDir("/a"), SizedDir("/c", replica_bytes={place: 10})) is Stage.CHANGED
    sizes = LogSizes(0.0, {1: (here, SizedDir("/b"))})
    execution = Execution("default/even", (), 1.0, [change], sizes=sizes)
    (action,) = plan_execution(execution, kafka("orders-0: 0 1 2 | 0 1 2"))
    assert isinstance(action, MoveDirectories)
    assert action.moves == {1: {place: "/b"}}


def test_a_cancellation_ends_copies_between_directories() -> None:
    """1. it is stopped: one replica is being copied, another one has moved  2. nothing is copied
    any more  3. `back`: the one that has moved goes back, and the other one is where it was."""
    places = [TopicPartition("orders", n) for n in (0, 1)]
    changes = [DirectoryChange("orders", n, 1, "/a", "/b", 10, "it is removed") for n in (0, 1)]
    proposal = Proposal(1, "remove-disks", 1.0, [], [], changes, [], 0, 0.0, 0, [])
    seen = kafka("orders-0: 0 1 2 | 0 1 2")

    def sizes(future: dict[TopicPartition, int]) -> LogSizes:
        moved = SizedDir("/b", replica_bytes={places[1]: 10}, future_bytes=future)
        return LogSizes(0.0, {1: (SizedDir("/a", replica_bytes={places[0]: 10}), moved)})

    status = KafkaRebalanceStatus(phase="Cancelling", proposal="abc", back=True)
    stopping = execution_of("default/even", status, proposal, sizes({places[0]: 3}))
    assert stopping is not None
    (action,) = plan_execution(stopping, seen)
    assert isinstance(action, MoveDirectories)
    assert action.moves == {1: {places[0]: "/a"}}
    assert after_moves(status, standing(stopping, seen), NOW).phase == "Cancelling"

    stopped = execution_of("default/even", status, proposal, sizes({}))
    assert stopped is not None
    assert plan_execution(stopped, seen) == ()
    back = after_moves(status, standing(stopped, seen), NOW)
    assert back.phase == "MovingBack"
    undoing = execution_of("default/even", back, proposal, sizes({}))
    assert undoing is not None
    (action,) = plan_execution(undoing, seen)
    assert isinstance(action, MoveDirectories)
    assert action.moves == {1: {places[1]: "/a"}}


def test_when_a_proposal_is_due() -> None:
    once = wanted()
    assert due(once, KafkaRebalanceStatus()) == "it is the first one"
    made = KafkaRebalanceStatus(phase="Done", proposed_at=instant(NOW), wish=once.wish)
    assert due(once, made) == ""
    assert due(replace(once, refresh="2"), made) == "a new one was asked for"
    assert due(wanted(mode="leaders-only"), made) == "the spec was changed"
    assert due(replace(once, cancel="keep"), KafkaRebalanceStatus()) == ""
    moving = msgspec.structs.replace(made, phase="Moving")
    assert due(replace(once, refresh="2"), moving) == ""
    nightly = wanted(schedule="0 2 * * *")
    assert due(nightly, KafkaRebalanceStatus()) == ""
    assert timed(nightly, KafkaRebalanceStatus(), NOW, NOW - 60) == ""
    assert timed(nightly, KafkaRebalanceStatus(), NOW + 86_400, NOW) != ""
    assert timed(nightly, made, NOW + 86_400, 0.0) != ""
    skew = wanted(imbalance={"percent": 20})
    assert check_due(skew, KafkaRebalanceStatus(), NOW)
    checked = KafkaRebalanceStatus(checked_at=instant(NOW))
    assert not check_due(skew, checked, NOW + 599)
    assert check_due(skew, checked, NOW + 601)


def test_only_the_proposal_that_was_read_can_be_approved() -> None:
    proposed = KafkaRebalanceStatus(phase="Proposed", proposal="abc")
    assert after_request(replace(wanted(), approve="old"), proposed).phase == "Proposed"
    assert after_request(replace(wanted(), approve="true"), proposed).phase == "Proposed"
    moving = after_request(replace(wanted(), approve="abc"), proposed)
    assert (moving.phase, moving.throttled) == ("Moving", True)
    assert after_request(replace(wanted(), approve="abc", cancel="keep"), proposed).phase == (
        "Cancelled"
    )


@pytest.mark.parametrize(("cancel", "back"), [("keep", False), ("back", True)])
def test_a_cancellation_stops_first(cancel: str, back: bool) -> None:
    moving = KafkaRebalanceStatus(phase="Moving", proposal="abc", throttled=True)
    status = after_request(replace(wanted(), cancel=cancel), moving)
    assert (status.phase, status.back) == ("Cancelling", back)
    found = standing(EXECUTION, kafka("orders-0: 0 1 2 | 0 1 2"))
    ended = after_moves(status, found, NOW)
    assert ended.phase == ("MovingBack" if back else "Cancelled")


def test_an_unknown_value_of_the_annotation_stops_and_is_reported() -> None:
    spec = wanted().spec
    assert spec is not None
    resource = Resource("KafkaRebalance", "even", spec, annotations={CANCEL_ANNOTATION: "stop"})
    found = wanted_of(resource)
    assert found.cancel == "keep"
    assert "neither keep nor back" in found.problem
