"""Golden plans: one change of the spec, the plan that follows, word for word.

Each case starts from a running cluster of six brokers in racks a, b, c with one topic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from odradek_operator.kafka.actions import Plan, Reassign
from odradek_operator.kafka.desired import DesiredCluster, Known
from odradek_operator.kafka.explain import explain
from odradek_operator.kafka.make_plan import make_plan
from odradek_operator.kafka.observed import Observed, ObservedBroker, ObservedKafka, Phase
from operator_tests.worlds import NOW, P, cluster, running, spread, with_phase

SIX: dict[str, Any] = {"brokers": 6}
TOPIC = spread("orders", 6, range(6))


def known(desired: DesiredCluster) -> Known:
    existing = {b.id: b.rack for b in desired.brokers.values()}
    return Known(existing, {}, desired.formation, "id")


def lines(plan: Plan) -> list[str]:
    return [explain(action) for action in plan]


def change(**spec: Any) -> Plan:
    """The plan after the spec of the running cluster became this."""
    before = cluster(**SIX)
    return make_plan(cluster(known(before), **{**SIX, **spec}), running(before, *TOPIC))


def test_a_new_cluster() -> None:
    assert lines(make_plan(cluster(**SIX), Observed(NOW))) == [
        "start brokers 0, 1, 2, 3, 4 and 1 more: brokers 0, 1, 2, 3, 4 and 1 more do not exist yet"
    ]


def test_nothing_to_do_is_an_empty_plan() -> None:
    desired = cluster(**SIX)
    assert make_plan(desired, running(desired, *TOPIC)) == ()


GOLDEN: list[tuple[str, Callable[[], Plan], list[str]]] = [
    (
        "static setting",
        lambda: change(config={"num.partitions": 4}),
        ["restart broker 1: num.partitions changed"],
    ),
    (
        "dynamic setting",
        lambda: change(config={"log.cleaner.threads": 2}),
        ["alter all brokers: without a restart: log.cleaner.threads=2"],
    ),
    (
        "min ISR is dynamic in Kafka",
        lambda: change(replication={"minInsyncReplicas": 1}),
        ["alter all brokers: without a restart: min.insync.replicas=1"],
    ),
    (
        "image",
        lambda: change(image="odradek:2"),
        ["restart broker 1: the image changes to odradek:2"],
    ),
    (
        "resources",
        lambda: change(resources={"limits": {"memory": "1Gi"}}),
        ["restart broker 1: resources or pod template changed"],
    ),
    (
        "a volume more",
        lambda: change(storage={"volumes": 2}),
        ["restart broker 1: log.dirs changed"],
    ),
    ("a larger volume needs no restart", lambda: change(storage={"size": "20Gi"}), []),
    (
        "three brokers more",
        lambda: change(brokers=9),
        ["start brokers 6, 7 and 8: brokers 6, 7 and 8 do not exist yet"],
    ),
    (
        "two brokers fewer",
        lambda: change(brokers=4),
        ["move 4 partitions: 4 of 4 partitions move off brokers 4 and 5"],
    ),
    (
        "fewer brokers than replicas",
        lambda: change(brokers=2),
        [
            "refuse: brokers 2, 3, 4 and 5 cannot be drained: orders-0 has 3 replicas and only 2 "
            "brokers would remain",
        ],
    ),
    ("pause", lambda: change(pause=True, brokers=9),
     ["wait: spec.pause is true: the operator changes nothing"]),
]  # fmt: skip


def test_metrics_of_apache_kafka_on_another_port() -> None:
    """The port is not a setting of Kafka; it is given to the process that starts Kafka."""
    apache: dict[str, Any] = {"engine": "apache", **SIX}
    before = cluster(**apache)
    after = cluster(known(before), **apache, metrics={"port": 9500})
    assert lines(make_plan(after, running(before, *TOPIC))) == [
        "restart broker 1: the metrics port changed"
    ]


@pytest.mark.parametrize(("plan", "expected"), [c[1:] for c in GOLDEN], ids=[c[0] for c in GOLDEN])
def test_golden(plan: Callable[[], Plan], expected: list[str]) -> None:
    assert sorted(lines(plan())) == sorted(expected)


def test_the_restart_annotation() -> None:
    before = cluster(**SIX)
    asked = cluster(known(before), {"odradek.dev/restart": "1"}, **SIX)
    assert lines(make_plan(asked, running(before, *TOPIC))) == [
        "restart broker 1: a restart was requested"
    ]
    assert make_plan(cluster(known(before), **SIX), running(asked, *TOPIC)) == ()


def test_a_dynamic_setting_that_was_taken_out_goes_back() -> None:
    desired = cluster(**SIX)
    observed = running(desired, *TOPIC)
    assert observed.kafka is not None
    entry = replace(observed.kafka.settings[0]["log.cleaner.threads"], value="2", dynamic=True)
    settings = {b: {**s, "log.cleaner.threads": entry} for b, s in observed.kafka.settings.items()}
    observed = replace(observed, kafka=replace(observed.kafka, settings=settings),
                       dynamic_config=frozenset({"log.cleaner.threads"}))  # fmt: skip
    assert lines(make_plan(desired, observed)) == [
        "alter all brokers: without a restart: log.cleaner.threads reset to its default"
    ]
    by_hand = replace(observed, dynamic_config=frozenset())
    assert make_plan(desired, by_hand) == (), "what others set is left alone"


def test_an_unreachable_broker_is_not_restarted_for_settings_that_may_be_dynamic() -> None:
    before = cluster(**SIX)
    observed = running(before, *TOPIC, settings={})
    changed = cluster(known(before), **SIX, config={"log.cleaner.threads": 2, "num.partitions": 4})
    assert make_plan(changed, observed) == ()
    crashed = with_phase(observed, Phase.CRASHED, 3)
    assert lines(make_plan(changed, crashed))[0].startswith("restart broker 3:")


# -- brokers that are not there --------------------------------------------------------------------


def test_nothing_is_concluded_from_missing_answers() -> None:
    """No broker answers: nothing is drained, removed or restarted, whatever the spec says."""
    before = cluster(**SIX)
    silent = replace(running(before), kafka=None, unreachable="connection refused")
    smaller = cluster(known(before), brokers=3, config={"num.partitions": 4})
    assert lines(make_plan(smaller, silent)) == ["wait: connection refused"]


def test_a_stopped_broker_is_started_also_during_a_roll() -> None:
    before = cluster(**SIX)
    observed = with_phase(running(before, *TOPIC), Phase.STOPPED, 2)
    changed = cluster(known(before), **SIX, config={"num.partitions": 4})
    assert lines(make_plan(changed, observed)) == [
        "start broker 2: broker 2 is not running",
        "wait: broker 2 is stopped",
    ]


# -- scale down, step by step ----------------------------------------------------------------------


def leaving(voter: bool = False, **kafka: Any) -> tuple[DesiredCluster, Observed]:
    before = cluster(brokers=4)
    observed = running(before, *spread("orders", 6, range(3)), **kafka)
    if voter:
        assert observed.kafka is not None
        observed = replace(observed, kafka=replace(observed.kafka, voters=frozenset({0, 1, 3})))
    return cluster(known(before), brokers=3), observed


def test_the_end_of_a_broker() -> None:
    desired, observed = leaving()
    say = "broker 3 holds no replica and is no longer wanted"
    assert lines(make_plan(desired, observed)) == [f"stop broker 3: {say}"]
    observed = with_phase(observed, Phase.STOPPED, 3)
    assert lines(make_plan(desired, observed)) == [f"unregister broker 3: {say}"]
    kafka: ObservedKafka = observed.kafka  # type: ignore[assignment]
    gone = replace(kafka, registered={0: "a", 1: "b", 2: "c"}, live=frozenset({0, 1, 2}))
    observed = replace(observed, kafka=gone)
    assert lines(make_plan(desired, observed)) == [f"remove broker 3 and keep its volumes: {say}"]
    voting = replace(observed, kafka=replace(gone, voters=frozenset({0, 1, 3})))
    assert lines(make_plan(desired, voting)) == [
        "wait: another broker has to replace broker 3 in the metadata quorum"
    ]


def voters(observed: Observed, *ids: int) -> Observed:
    assert observed.kafka is not None
    return replace(observed, kafka=replace(observed.kafka, voters=frozenset(ids)))


def test_how_a_voter_leaves() -> None:
    say = "broker 3 holds no replica and is no longer wanted"
    desired, observed = leaving(voter=True)
    # Broker 2 does not vote yet: our controller adds it in place of the unregistered voter.
    assert lines(make_plan(desired, observed)) == [f"stop broker 3: {say}"]
    # All remaining brokers vote already, or the majority would be lost: removed before it stops.
    for ids in ((0, 1, 2, 3), (0, 3)):
        assert lines(make_plan(desired, voters(observed, *ids))) == [f"remove voter 3: {say}"]
    assert lines(make_plan(desired, voters(observed, 3))) == [
        f"add voter 0: no voter of the metadata quorum stays; {say}"
    ]
    before = cluster(brokers=2)
    pair = voters(running(before), 1)
    assert lines(make_plan(cluster(known(before), brokers=1), pair))[-1].startswith(
        "wait: broker 1 cannot be removed: it is the only voter of the metadata quorum"
    )
    # Apache Kafka does not replace voters.
    spec = msgspec.structs.replace(desired.spec, engine="apache")
    apache = replace(desired, spec=spec)
    assert lines(make_plan(apache, observed))[-1] == f"remove voter 3: {say}"


def test_of_three_voters_one_is_kept() -> None:
    """3 to 1: both leave the quorum before a broker stops, because two voters need both."""
    before = cluster(brokers=3)
    observed = running(before)
    desired = cluster(known(before), brokers=1)
    assert lines(make_plan(desired, observed))[-1].startswith("remove voter 2:")
    assert lines(make_plan(desired, voters(observed, 0, 1)))[-1].startswith("remove voter 1:")
    assert lines(make_plan(desired, voters(observed, 0)))[-1].startswith("stop broker 2:")


def test_nobody_leaves_the_quorum_while_another_restarts() -> None:
    """Voters 0, 1 and 3: 3 removed and 1 down would leave one of two."""
    before = cluster(brokers=4)
    _, observed = leaving(voter=True)
    changed = cluster(known(before), brokers=3, config={"num.partitions": 4})
    assert lines(make_plan(changed, observed)) == ["restart broker 1: num.partitions changed"]
    (wait, *rest) = lines(make_plan(changed, with_phase(observed, Phase.STARTING, 1)))
    assert wait == "wait: broker 1 is starting"
    assert not any("voter" in line for line in rest)


def test_a_leaving_broker_that_died_with_replicas_is_started_to_drain() -> None:
    before = cluster(brokers=4)
    observed = with_phase(running(before, P("t-0: 3 | 3 @- min=1")), Phase.STOPPED, 3)
    assert lines(make_plan(cluster(known(before), brokers=3), observed))[0] == (
        "start broker 3: broker 3 is not running"
    )


def test_draining_waits_while_partitions_move() -> None:
    desired, observed = leaving()
    moving = replace(P("t-0: 3 0 1 2 | 3 0 1"), adding=frozenset({2}), removing=frozenset({3}))
    assert observed.kafka is not None
    observed = replace(observed, kafka=replace(observed.kafka, partitions=(moving,)))
    assert lines(make_plan(desired, observed)) == [
        "wait: 1 partitions are still moving off broker 3"
    ]


def test_drained_replicas_stay_in_their_rack() -> None:
    before = cluster(**SIX)
    (plan,) = make_plan(cluster(known(before), brokers=5), running(before, *TOPIC))
    assert isinstance(plan, Reassign)
    assert all(5 not in replicas for replicas in plan.moves.values())
    assert all({r % 3 for r in replicas} == {0, 1, 2} for replicas in plan.moves.values())


# -- racks -----------------------------------------------------------------------------------------


def test_racks_are_repaired_only_if_asked() -> None:
    shared = P("t-0: 0 3 1 | 0 3 1")
    manual = cluster(**SIX)
    assert make_plan(manual, running(manual, shared)) == ()
    auto = cluster(**SIX, rebalance="auto")
    (action,) = make_plan(auto, running(auto, shared))
    assert isinstance(action, Reassign)
    ((target),) = action.moves.values()
    assert {r % 3 for r in target} == {0, 1, 2}
    assert target[0] == 0


def test_new_brokers_are_filled_only_if_asked() -> None:
    auto = cluster(**SIX, rebalance="auto")
    crowded = spread("orders", 12, range(3))
    (action,) = make_plan(auto, running(auto, *crowded))
    assert isinstance(action, Reassign)
    after = {p.id: action.moves.get(p.id, p.replicas) for p in crowded}
    sizes = [sum(b in replicas for replicas in after.values()) for b in range(6)]
    assert max(sizes) - min(sizes) <= 1
    assert all({r % 3 for r in replicas} == {0, 1, 2} for replicas in after.values())
    manual = cluster(**SIX)
    assert make_plan(manual, running(manual, *crowded)) == ()


def test_an_unknown_broker_is_not_touched() -> None:
    desired = cluster(**SIX)
    observed = running(desired, *TOPIC)
    stranger = ObservedBroker(9, "a", Phase.STOPPED)
    observed = replace(observed, brokers={**observed.brokers, 9: stranger})
    assert make_plan(desired, observed) == ()
