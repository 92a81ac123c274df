"""Topics: what is done for each, in batches, and what is refused on which resource."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from odradek_operator.kafka.actions import CreateTopics, Plan, Reassign
from odradek_operator.kafka.desired import DesiredTopic
from odradek_operator.kafka.explain import explain
from odradek_operator.kafka.observed import Observed, ObservedTopic
from odradek_operator.kafka.topics import TOPICS_MAX, claims, plan_topics
from operator_tests.worlds import P, cluster, running, topic

BROKERS = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}


def world(*partitions: str, managed: dict[str, str] | None = None, **config: Any) -> Observed:
    observed = running(cluster(brokers=6), *map(P, partitions))
    assert observed.kafka is not None
    topics = {
        name: replace(found, config=config.get(name, {}))
        for name, found in observed.kafka.topics.items()
    }
    return replace(
        observed,
        kafka=replace(observed.kafka, topics=topics),
        managed_topics=managed or {},
    )


def lines(observed: Observed, *topics: DesiredTopic) -> list[str]:
    return [explain(action) for action in plan_topics(topics, observed, BROKERS)]


ORDERS = {"orders": "default/orders"}
HERE = "orders-0: 0 1 2 | 0 1 2"


def test_create_with_the_settings_of_the_spec() -> None:
    (action,) = plan_topics([topic("t", partitions=3), topic("u")], world(), BROKERS)
    assert isinstance(action, CreateTopics)
    assert [(t.name, t.partitions, t.replication_factor) for t in action.topics] == [
        ("t", 3, -1),
        ("u", -1, -1),
    ]
    assert explain(action) == "create topics t and u: topics t and u do not exist yet"


def test_thousands_of_topics_are_a_few_requests() -> None:
    plan = plan_topics([topic(f"t{n}") for n in range(1000)], world(), BROKERS)
    assert len(plan) == 1000 / TOPICS_MAX


def test_a_topic_as_desired_needs_no_action() -> None:
    wanted = topic("orders", partitions=1, replication_factor=3, config={"retention.ms": "1000"})
    assert lines(world(HERE, managed=ORDERS, orders={"retention.ms": "1000"}), wanted) == []


def test_grow_but_never_shrink() -> None:
    two = world(HERE, "orders-1: 1 2 3 | 1 2 3", managed=ORDERS)
    assert lines(two, topic("orders", partitions=4)) == [
        "add partitions to topic orders: orders from 2 to 4"
    ]
    assert lines(two, topic("orders", partitions=1)) == [
        "refuse default/orders: topic orders has 2 partitions, which cannot be removed"
    ]


def test_config_drift() -> None:
    found = world(HERE, managed=ORDERS, orders={"retention.ms": "5", "cleanup.policy": "compact"})
    found = replace(found, managed_settings={"orders": frozenset({"retention.ms", "max.message"})})
    assert lines(found, topic("orders", config={"retention.ms": "7"})) == [
        "alter topic orders: orders: retention.ms is set to 7"
    ]
    assert lines(found, topic("orders")) == ["alter topic orders: orders: retention.ms is unset"], (
        "cleanup.policy was set by others and stays"
    )


def test_replication_factor_by_reassignment() -> None:
    (more,) = plan_topics([topic("orders", replication_factor=4)],
                          world(HERE, managed=ORDERS), BROKERS)  # fmt: skip
    assert isinstance(more, Reassign)
    ((target),) = more.moves.values()
    assert target[:3] == (0, 1, 2)
    assert len(target) == 4
    (fewer,) = plan_topics([topic("orders", replication_factor=1)],
                           world(HERE, managed=ORDERS), BROKERS)  # fmt: skip
    assert isinstance(fewer, Reassign)
    assert list(fewer.moves.values()) == [(0,)]
    assert lines(world(managed=ORDERS), topic("orders", replication_factor=7)) == [
        "refuse default/orders: topic orders needs 7 brokers for its replicas; there are 6"
    ]


def test_a_topic_that_another_owner_created() -> None:
    assert lines(world(HERE), topic("orders", partitions=9)) == [
        "refuse default/orders: topic orders already exists; set spec.adopt: true to manage it"
    ]
    adopted = topic("orders", partitions=2, adopt=True)
    assert claims([adopted], world(HERE)) == ORDERS
    assert lines(world(HERE), adopted) == ["add partitions to topic orders: orders from 1 to 2"]


def test_two_resources_for_one_topic_are_both_reported() -> None:
    one = DesiredTopic("t", "default/one")
    two = DesiredTopic("t", "other/two")
    assert lines(world(), one, two) == [
        "refuse default/one: topic t is also declared by other/two",
        "refuse other/two: topic t is also declared by default/one",
    ]
    first = world("t-0: 0 1 2 | 0 1 2", managed={"t": "default/one"})
    assert lines(first, one, two) == ["refuse other/two: topic t is also declared by default/one"]


def test_delete_or_retain() -> None:
    found = world(HERE, managed=ORDERS)
    assert lines(found, topic("orders", delete=True)) == [
        "delete topic orders: deletionPolicy is Delete: topic orders"
    ]
    assert lines(found, topic("orders", delete=True, retain=True)) == []
    assert lines(world(HERE), topic("orders", delete=True)) == [], "never what was not ours"
    assert lines(world(managed=ORDERS), topic("orders", delete=True)) == [], "gone already"


def test_an_operator_that_died_after_creating_knows_its_topic() -> None:
    """1. the claim is written  2. the topic is created  3. the operator dies  4. another plans."""
    wanted = topic("orders", partitions=1)
    owned = claims([wanted], world())
    assert owned == ORDERS
    assert lines(world(HERE, managed=owned), wanted) == []


def test_internal_topics_of_kafka_are_left_alone() -> None:
    observed = world("__consumer_offsets-0: 0 1 2 | 0 1 2")
    assert observed.kafka is not None
    internal = ObservedTopic("__consumer_offsets", internal=True, partitions=1)
    observed = replace(
        observed, kafka=replace(observed.kafka, topics={"__consumer_offsets": internal})
    )
    plan: Plan = plan_topics([], observed, BROKERS)
    assert plan == ()
