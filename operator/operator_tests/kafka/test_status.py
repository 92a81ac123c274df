"""Conditions and the status of a roll: what `kubectl describe` says in each situation."""

from __future__ import annotations

from dataclasses import replace

from odradek_api.base import instant
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_operator.kafka.desired import DesiredCluster, Known
from odradek_operator.kafka.make_plan import make_plan
from odradek_operator.kafka.observed import Observed, Phase
from odradek_operator.kafka.status import cluster_status, topic_statuses
from operator_tests.worlds import NOW, P, cluster, running, spread, topic, with_phase


def status(
    desired: DesiredCluster, observed: Observed, before: KafkaClusterStatus | None = None
) -> KafkaClusterStatus:
    return cluster_status(desired, observed, make_plan(desired, observed), before)


def conditions(found: KafkaClusterStatus) -> dict[str, str]:
    return {c.type: f"{c.status} {c.reason}" for c in found.conditions}


SIX = cluster(brokers=6)
TOPIC = spread("orders", 6, range(6))


def test_all_is_well() -> None:
    found = status(SIX, running(SIX, *TOPIC))
    assert conditions(found) == {
        "Ready": "True AllBrokersReady",
        "Progressing": "False AsDesired",
        "Degraded": "False AllReplicasInSync",
        "RackAware": "True RacksApart",
        "PreferredLeaders": "True AllPreferred",
        "DiskPressure": "False EnoughSpace",
    }
    assert (found.ready_brokers, found.broker_count, found.preferred_leaders_percent) == (6, 6, 100)
    assert found.rolling is None
    assert found.brokers[0].leaders == found.brokers[0].preferred_leaders == 1


def test_the_deprecated_form_of_the_listeners_is_a_condition() -> None:
    old = cluster(brokers=6, listeners={"port": 9092})
    found = status(old, running(old, *TOPIC))
    assert conditions(found)["Deprecated"] == "True DeprecatedListeners"
    (one,) = [c for c in found.conditions if c.type == "Deprecated"]
    assert "spec.listeners" in one.message
    listed = cluster(brokers=6, listeners=[{"name": "plaintext", "port": 9092}])
    assert "Deprecated" not in conditions(status(listed, running(listed, *TOPIC)))


def test_one_broker_is_down() -> None:
    behind = [replace(p, isr=p.isr - {2}) for p in TOPIC]
    found = status(SIX, with_phase(running(SIX, *behind), Phase.STOPPED, 2))
    seen = {c.type: c for c in found.conditions}
    assert seen["Ready"].message == "5 of 6 brokers are ready; not ready: 2"
    assert seen["Degraded"].reason == "UnderReplicated"
    assert seen["Progressing"].message == "broker 2 is not running"


def test_racks_that_are_shared_are_listed() -> None:
    found = status(SIX, running(SIX, P("t-0: 0 3 1 | 0 3 1"), *TOPIC))
    (rack_aware,) = [c for c in found.conditions if c.type == "RackAware"]
    assert rack_aware.status == "False"
    assert rack_aware.message == "1 partitions have replicas that share a rack: t-0"


def test_a_time_changes_only_with_its_condition() -> None:
    first = status(SIX, running(SIX, *TOPIC))
    later = replace(running(SIX, *TOPIC), now=NOW + 60)
    assert status(SIX, later, first) == first, "a reconcile without changes writes nothing"
    down = with_phase(later, Phase.STOPPED, 2)
    changed = {c.type: c.last_transition_time for c in status(SIX, down, first).conditions}
    assert changed["Ready"] == instant(NOW + 60)
    assert changed["RackAware"] == instant(NOW)


def test_a_roll_says_what_it_waits_for_and_since_when() -> None:
    existing = {b.id: b.rack for b in SIX.brokers.values()}
    known = Known(existing, {}, SIX.formation, "id")
    changed = cluster(known, brokers=6, config={"num.partitions": 4})
    started = status(changed, running(SIX, *TOPIC))
    assert started.rolling is not None
    assert (started.rolling.state, started.rolling.brokers) == ("Restarting", [1])
    assert started.rolling.remaining == [0, 1, 2, 3, 4, 5]
    assert started.brokers[4].pending == "num.partitions changed"

    back = running(SIX, *[replace(p, isr=p.isr - {1}, leader=min(p.isr - {1})) for p in TOPIC])
    up_to_date = replace(back.brokers[1], started_with=changed.brokers[1].settings)
    back = replace(back, brokers={**back.brokers, 1: up_to_date}, now=NOW + 5)
    waiting = status(changed, back, started)
    assert waiting.rolling is not None
    assert waiting.rolling.reason == "orders-0 has 2 of 3 replicas in sync; waiting for broker 1"
    assert (waiting.rolling.partition, waiting.rolling.since) == ("orders-0", instant(NOW + 5))
    still = status(changed, replace(back, now=NOW + 9), waiting)
    assert still.rolling is not None
    assert still.rolling.since == instant(NOW + 5)


def test_a_topic_with_one_replica_is_named_while_it_is_unavailable() -> None:
    existing = {b.id: b.rack for b in SIX.brokers.values()}
    changed = cluster(Known(existing, {}, SIX.formation, "id"), brokers=6, config={"x.y": 4})
    lonely = P("lonely-0: 1 | 1 min=1")
    began = status(changed, running(SIX, lonely))
    assert began.rolling is not None
    assert (began.rolling.brokers, began.rolling.unavailable) == ([1], ["lonely-0"])
    away = with_phase(running(SIX, replace(lonely, leader=-1)), Phase.STARTING, 1)
    waits = status(changed, away, began)
    assert waits.rolling is not None
    assert (waits.rolling.state, waits.rolling.unavailable) == ("Waiting", ["lonely-0"])


def test_a_node_that_was_relabelled() -> None:
    observed = running(SIX, *TOPIC)
    moved = replace(observed.brokers[3], node_rack="b")
    said = status(SIX, replace(observed, brokers={**observed.brokers, 3: moved}))
    (found,) = [c for c in said.conditions if c.type == "RackAware"]
    assert (found.status, found.reason) == ("False", "NodeInOtherRack")
    assert found.message == ("nodes were relabelled: broker 3 of rack a is on a node of b")


def test_both_resources_that_claim_a_topic_are_named() -> None:
    observed = replace(running(SIX, *TOPIC), managed_topics={"orders": "default/orders"})
    wanted = [topic("orders"), replace(topic("orders"), owner="default/rival")]
    plan = make_plan(SIX, observed, wanted)
    said = topic_statuses(wanted, observed, plan, observed.managed_topics)
    both = {k: s.conditions[0] for k, s in said.items()}
    assert both["default/rival"].status == "False"
    assert both["default/rival"].message == "topic orders is also declared by default/orders"
    assert both["default/orders"].status == "True"
    assert both["default/orders"].message == (
        "Topic orders matches its spec; default/rival is refused for declaring it too"
    )


def test_topics() -> None:
    observed = running(SIX, *TOPIC)
    wanted = topic("orders", adopt=True)
    owned = {"orders": "default/orders"}
    found = topic_statuses([wanted], observed, (), owned)["default/orders"]
    assert (found.partitions, found.replication_factor, found.managed) == (6, 3, True)
    assert found.conditions[0].status == "True"
    stranger = topic("orders")
    plan = make_plan(SIX, observed, [stranger])
    refused = topic_statuses([stranger], observed, plan, {})["default/orders"]
    assert refused.conditions[0].reason == "TopicExists"
    assert not refused.managed
