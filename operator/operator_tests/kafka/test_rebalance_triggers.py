"""spec.automatic: which events lead to which proposal, also after the operator was down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from odradek_api.base import instant
from odradek_api.kafka_rebalance.spec import KafkaRebalanceSpec
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_operator.kafka.actions import Reassign, Throttle, Wait
from odradek_operator.kafka.balance.document import Move
from odradek_operator.kafka.balance.loads import Restrictions, see
from odradek_operator.kafka.balance.make import Wish, propose
from odradek_operator.kafka.desired import Known
from odradek_operator.kafka.make_plan import Others, make_plan
from odradek_operator.kafka.observed import LogSizes, ObservedKafka, Phase
from odradek_operator.kafka.rebalance_states import interrupted
from odradek_operator.kafka.rebalance_triggers import (
    RETRY_S,
    Members,
    Trigger,
    lost_brokers,
    remember,
    taken_into_account,
    trigger,
)
from odradek_operator.kafka.rebalancing import Execution, plan_execution, standing
from operator_tests.worlds import NOW, P, cluster, running

MINUTES = 5
NOBODY = Members()  # no broker leaves
LATER = NOW + 60 * MINUTES + 1


def spec(**automatic: Any) -> KafkaRebalanceSpec:
    given = {"cluster": {"name": "main"}, "automatic": automatic}
    return msgspec.convert(given, KafkaRebalanceSpec)


ALL = spec(scaleUp=True, scaleDown=True, racks=True, brokerLossMinutes=MINUTES)


def kafka(brokers: int, *texts: str, down: frozenset[int] = frozenset()) -> ObservedKafka:
    observed = running(cluster(brokers=brokers), *map(P, texts or ("orders-0: 0 1 2 | 0 1 2",)))
    found = observed.kafka
    assert found is not None
    return replace(found, live=found.live - down)


def after(event: Trigger | None, status: KafkaRebalanceStatus, seen: ObservedKafka, phase: Any) -> (
    KafkaRebalanceStatus
):  # fmt: skip
    """The status of the proposal for an event, made at NOW."""
    assert event is not None
    known = taken_into_account(event, event.mode, status, seen)
    return msgspec.structs.replace(
        status, known=known, trigger=event.key, phase=phase, proposed_at=instant(NOW)
    )


def test_without_automatic_nothing_is_remembered_and_nothing_happens() -> None:
    plain = msgspec.convert({"cluster": {"name": "main"}}, KafkaRebalanceSpec)
    seen = kafka(4, down=frozenset({1}))
    assert remember(plain, KafkaRebalanceStatus(), seen, NOW) == KafkaRebalanceStatus()
    assert trigger(plain, KafkaRebalanceStatus(), seen, Members({3}), LATER) is None


def test_a_new_broker_gets_replicas_once() -> None:
    before = remember(ALL, KafkaRebalanceStatus(), kafka(3), NOW)
    assert trigger(ALL, before, kafka(3), NOBODY, NOW) is None
    event = trigger(ALL, before, kafka(5), NOBODY, NOW)
    assert event is not None
    assert (event.key, event.mode, event.brokers) == ("added:3,4", "add-brokers", (3, 4))
    assert event.why == "brokers 3 and 4 are new"
    done = after(event, before, kafka(5), "Done")
    assert [b.id for b in done.known] == [0, 1, 2, 3, 4]
    assert trigger(ALL, done, kafka(5), NOBODY, NOW + 10 * RETRY_S) is None
    assert trigger(spec(racks=True), before, kafka(5), NOBODY, NOW) is None  # not asked for


def test_new_brokers_are_one_event() -> None:
    """1. two are wanted, one is there  2. both are  3. a third comes before the approval."""
    before = remember(ALL, KafkaRebalanceStatus(), kafka(3), NOW)
    five = Members(wanted=range(5))
    assert trigger(ALL, before, kafka(4), five, NOW) is None
    event = trigger(ALL, before, kafka(5), five, NOW)
    assert event is not None
    assert event.brokers == (3, 4)
    proposed = after(event, before, kafka(5), "Proposed")
    proposed = msgspec.structs.replace(proposed, mode=event.mode, brokers=[*event.brokers])
    event = trigger(ALL, proposed, kafka(6), Members(wanted=range(6)), NOW)
    assert event is not None
    assert event.brokers == (3, 4, 5)


def test_brokers_that_were_empty_at_first_sight_are_new() -> None:
    """The cluster was scaled up while no operator ran."""
    status = remember(ALL, KafkaRebalanceStatus(), kafka(4), NOW)
    event = trigger(ALL, status, kafka(4), NOBODY, NOW)
    assert event is not None
    assert event.brokers == (3,)


def test_a_broker_is_lost_after_its_time_and_new_when_it_returns() -> None:
    """1. away  2. for long enough: also if nothing was running meanwhile  3. its replicas are
    elsewhere  4. it returns, empty."""
    seen = kafka(4, "orders-0: 0 1 2 | 0 1", "orders-1: 0 1 3 | 0 1 3", down=frozenset({2}))
    status = remember(ALL, KafkaRebalanceStatus(), seen, NOW)
    assert trigger(ALL, status, seen, NOBODY, NOW + 60 * MINUTES - 1) is None
    status = remember(ALL, status, seen, LATER)
    assert [(b.id, b.since) for b in status.away] == [(2, instant(NOW))]
    assert lost_brokers(ALL, status, seen, LATER) == {2}
    event = trigger(ALL, status, seen, NOBODY, LATER)
    assert event is not None
    assert (event.key, event.mode, event.brokers) == ("lost:2", "remove-brokers", (2,))
    assert "for longer than 5 min" in event.why

    waiting = after(event, status, seen, "Proposed")
    assert trigger(ALL, waiting, seen, NOBODY, LATER + 10 * RETRY_S) is None  # for the approval
    failed = msgspec.structs.replace(waiting, phase="Failed")
    assert trigger(ALL, failed, seen, NOBODY, NOW + RETRY_S - 1) is None
    assert trigger(ALL, failed, seen, NOBODY, NOW + RETRY_S + 1) == event

    moved = kafka(4, "orders-0: 0 1 3 | 0 1 3", "orders-1: 0 1 3 | 0 1 3", down=frozenset({2}))
    done = remember(ALL, after(event, status, seen, "Done"), moved, LATER)
    assert trigger(ALL, done, moved, NOBODY, LATER + 10 * RETRY_S) is None
    back = kafka(4, "orders-0: 0 1 3 | 0 1 3", "orders-1: 0 1 3 | 0 1 3")
    returned = remember(ALL, done, back, LATER)
    assert returned.away == []
    event = trigger(ALL, returned, back, NOBODY, LATER)
    assert event is not None
    assert (event.key, event.mode) == ("added:2", "add-brokers")


def test_a_broker_that_returns_in_time_begins_anew() -> None:
    away = remember(ALL, KafkaRebalanceStatus(), kafka(3, down=frozenset({1})), NOW)
    back = remember(ALL, away, kafka(3), NOW + 60)
    again = remember(ALL, back, kafka(3, down=frozenset({1})), NOW + 200)
    assert lost_brokers(ALL, again, kafka(3, down=frozenset({1})), LATER) == frozenset()


def test_a_broker_that_leaves_is_emptied_and_one_in_another_rack_noticed() -> None:
    seen = kafka(4, "orders-0: 0 1 3 | 0 1 3", "orders-1: 2 0 1 | 2 0 1")
    status = remember(ALL, KafkaRebalanceStatus(), seen, NOW)
    event = trigger(ALL, status, seen, Members({3}), NOW)
    assert event is not None
    assert (event.key, event.mode, event.brokers) == ("removed:3", "remove-brokers", (3,))
    empty = kafka(4, "orders-0: 0 1 | 0 1")
    assert trigger(spec(scaleDown=True), status, empty, Members({3}), NOW) is None

    elsewhere = replace(seen, registered={**seen.registered, 1: "z"})
    event = trigger(ALL, status, elsewhere, NOBODY, NOW)
    assert event is not None
    assert (event.key, event.mode) == ("racks:1:z", "full")
    done = after(event, status, elsewhere, "Balanced")
    assert trigger(ALL, done, elsewhere, NOBODY, NOW + 10 * RETRY_S) is None


@pytest.mark.parametrize("removed", [frozenset[int](), frozenset({2})])
def test_moves_off_a_lost_broker_do_not_wait_for_it(removed: frozenset[int]) -> None:
    """Neither with their start, nor with their throttle, nor because the platform starts it."""
    move = Move("orders", 0, (0, 1, 2), (0, 1, 3), 10, 1.0, "broker 2 is removed")
    execution = Execution("default/even", [move], 50e6, removed=removed, without=removed)
    desired = cluster(brokers=4)
    observed = running(desired, P("orders-0: 0 1 2 | 0 1"))
    gone = replace(observed.brokers[2], phase=Phase.STARTING)
    seen = observed.kafka
    assert seen is not None
    settings = {b: s for b, s in seen.settings.items() if b != 2}
    seen = replace(seen, live=seen.live - {2}, settings=settings)
    observed = replace(observed, brokers={**observed.brokers, 2: gone}, kafka=seen)
    plan = make_plan(desired, observed, executions=[execution])
    throttles = [action for action in plan if isinstance(action, Throttle)]
    if not removed:
        assert throttles == []
        assert "broker 2" in standing(execution, seen).progress.hold
    else:
        assert [t.brokers for t in throttles] == [(0, 1, 3)]
        after_moves = replace(seen, partitions=(P("orders-0: 0 1 3 | 0 1 3"),))
        assert standing(execution, after_moves).finished
        assert plan_execution(execution, after_moves) == ()


def test_moves_that_had_begun_stop_when_a_broker_is_lost() -> None:
    moving = KafkaRebalanceStatus(phase="Moving", proposal="abc", brokers=[3])
    assert interrupted(moving, frozenset({3})).phase == "Moving"  # it is what they replace
    assert interrupted(moving, frozenset()).phase == "Moving"
    stopped = interrupted(moving, frozenset({2}))
    assert (stopped.phase, stopped.back) == ("Cancelling", False)
    assert stopped.problems == ["stopped, because broker 2 was lost meanwhile"]


def test_a_partition_of_which_the_lost_broker_had_the_only_replica_stays() -> None:
    """No live broker has its records, so a move would never end; the proposal says so."""
    partitions = [P("orders-0: 2 | 2@-"), P("orders-1: 2 0 | 0")]
    empty = LogSizes(0.0)
    racks = {0: "a", 1: "b", 2: "c"}
    seen = see(partitions, racks, frozenset({0, 1}), (empty, empty), Restrictions())
    wish = Wish(mode="remove-brokers", brokers=(2,))
    found = propose(wish, seen.brokers, seen.partitions)
    assert [(m.partition, m.after) for m in found.moves] == [(1, (1, 0))]
    (problem,) = found.problems
    assert problem.startswith("orders-0 cannot leave broker 2: ")
    assert "no leader to copy from" in problem
    assert found.removed == [2]


def test_the_plan_omits_actions_of_a_rebalance() -> None:
    existing = {0: "a", 1: "b", 2: "c", 3: "a"}
    desired = cluster(Known(existing=existing, cluster_id="id"), brokers=3)
    observed = running(cluster(brokers=4), P("orders-0: 0 1 3 | 0 1 3"))
    assert any(isinstance(a, Reassign) for a in make_plan(desired, observed))
    plan = make_plan(desired, observed, others=Others(balance=True, drained_by="default/even"))
    assert not any(isinstance(a, Reassign) for a in plan)
    waits = [a.reason.message for a in plan if isinstance(a, Wait)]
    assert waits == ["KafkaRebalance default/even moves 1 partitions off broker 3; see its status"]
    removing = Execution(
        "default/even",
        [Move("orders", 0, (0, 1, 3), (0, 1, 2), 10, 1.0, "broker 3 is removed")],
        50e6,
        removed=frozenset({3}),
    )
    plan = make_plan(desired, observed, executions=[removing], others=Others(True, "default/even"))
    assert any(isinstance(a, Throttle) for a in plan)  # its moves are what the removal waits for
