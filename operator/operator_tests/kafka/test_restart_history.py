"""The last restarts, and what clients noticed: planned ones, and nodes that end by themselves."""

from __future__ import annotations

from dataclasses import replace

from odradek_api.base import instant
from odradek_api.kafka_cluster.status import KafkaClusterStatus, RestartStatus
from odradek_operator.kafka.desired import DesiredCluster, Known
from odradek_operator.kafka.make_plan import make_plan
from odradek_operator.kafka.observed import Ended, Observed, Phase
from odradek_operator.kafka.restart_history import BEGINS_WITHIN_S, RESTARTS_MAX
from odradek_operator.kafka.status import cluster_status
from operator_tests.worlds import NOW, P, cluster, running, with_phase

SIX = cluster(brokers=6)
EXISTING = {b.id: b.rack for b in SIX.brokers.values()}
CHANGED = cluster(Known(EXISTING, {}, SIX.formation, "id"), brokers=6, config={"x.y": 4})
ORDERS = (P("orders-0: 1 2 3 | 1 2 3"), P("orders-1: 1 4 5 | 1 4 5"), P("lonely-0: 1 | 1 min=1"))


def status(
    desired: DesiredCluster, observed: Observed, before: KafkaClusterStatus | None = None
) -> KafkaClusterStatus:
    return cluster_status(desired, observed, make_plan(desired, observed), before)


def at(observed: Observed, now: float, node: int, phase: Phase, **changes: object) -> Observed:
    """Later, with this broker in another phase since then, and its settings up to date."""
    moved = with_phase(observed, phase, node)
    broker = replace(moved.brokers[node], since=now, **changes)  # type: ignore[arg-type]
    return replace(moved, now=now, brokers={**moved.brokers, node: broker})


def test_a_planned_restart_from_its_plan_until_it_serves_again() -> None:
    """
    1. The plan restarts broker 1: it leads three partitions, of which one has no other replica.
    2. It is away; a partition of two others cannot be written either.
    3. It serves again: the entry has the time of its phase, not of the pass.
    """
    settled = status(SIX, running(SIX, *ORDERS))
    assert settled.restarts == []
    began = status(CHANGED, running(SIX, *ORDERS), settled)
    assert began.restarts == [
        RestartStatus(node=1, planned=True, reason="broker 1: x.y changed",
                      began=instant(NOW), leaders=3,
                      unavailable=["lonely-0"])
    ]  # fmt: skip
    fewer = (P("orders-0: 1 2 3 | 2"), P("orders-1: 1 4 5 | 4 5"), P("lonely-0: 1 | @-"))
    away = at(running(SIX, *fewer), NOW + 3, 1, Phase.STARTING,
              started_with=CHANGED.brokers[1].settings)  # fmt: skip
    later = status(CHANGED, away, began)
    assert later.restarts[0].unavailable == ["lonely-0", "orders-0"]
    assert later.restarts[0].ready == ""
    back = replace(at(away, NOW + 7, 1, Phase.READY), now=NOW + 9)
    done = status(CHANGED, back, later)
    assert [(one.node, one.ready) for one in done.restarts] == [(1, instant(NOW + 7))]
    assert status(CHANGED, replace(back, now=NOW + 60), done).restarts == done.restarts


def test_a_broker_that_ends_by_itself() -> None:
    settled = status(SIX, running(SIX, *ORDERS))
    ended = Ended(-9, "it ended with signal 9 (SIGKILL)")
    down = at(running(SIX, *ORDERS), NOW + 5, 2, Phase.STARTING, ended=ended)
    seen = status(SIX, down, settled)
    assert seen.restarts == [
        RestartStatus(node=2, reason="it ended with signal 9 (SIGKILL)", began=instant(NOW + 5))
    ]
    assert status(SIX, replace(down, now=NOW + 6), seen).restarts == seen.restarts, "once"
    back = status(SIX, at(down, NOW + 8, 2, Phase.READY), seen)
    assert back.restarts[0].ready == instant(NOW + 8)


def test_a_new_broker_that_starts_is_no_restart() -> None:
    starting = at(running(SIX, *ORDERS), NOW, 5, Phase.STARTING)
    assert status(SIX, starting).restarts == []
    settled = status(SIX, running(SIX, *ORDERS))
    smaller = cluster(Known(EXISTING, {}, SIX.formation, "id"), brokers=5)
    gone = at(running(SIX, *ORDERS), NOW, 5, Phase.STOPPED)
    assert 5 not in {one.node for one in status(smaller, gone, settled).restarts}


def test_a_restart_that_did_not_happen_is_dropped() -> None:
    """A pod is READY until it ends, so an entry waits; then the manifest was changed back."""
    settled = status(SIX, running(SIX, *ORDERS))
    began = status(CHANGED, running(SIX, *ORDERS), settled)
    waits = status(SIX, replace(running(SIX, *ORDERS), now=NOW + 60), began)
    assert waits.restarts == began.restarts
    late = replace(running(SIX, *ORDERS), now=NOW + BEGINS_WITHIN_S + 1)
    assert status(SIX, late, waits).restarts == []


def test_only_the_newest_are_kept() -> None:
    old = [
        RestartStatus(node=3, began=instant(NOW - n), ready=instant(NOW - n))
        for n in range(1, RESTARTS_MAX + 1)
    ]
    settled = status(SIX, running(SIX, *ORDERS))
    before = KafkaClusterStatus(brokers=settled.brokers, restarts=old)
    found = status(CHANGED, running(SIX, *ORDERS), before).restarts
    assert len(found) == RESTARTS_MAX
    assert [one.node for one in found[:2]] == [1, 3]
