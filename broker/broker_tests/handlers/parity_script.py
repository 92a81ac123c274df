"""Admin requests that are sent to our broker and to Apache Kafka, in this order.

Each step is one request, with a label for the report (`parity_requests.py`). Steps build on each
other (a topic is created, changed, deleted). Answers must be equal after `test_admin_parity.py` has
removed the fields that differ in every run (ids, ports, times).
"""

from collections.abc import Iterator
from uuid import UUID

from broker_tests.handlers.parity_cluster_steps import cluster_steps
from broker_tests.handlers.parity_requests import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    Step,
    change,
    create,
    cursor,
    delete,
    describe,
    grow,
    metadata,
    page,
    read,
    replace,
    topic,
)
from odradek_protocol.messages.struct import Struct


def steps() -> Iterator[Step]:
    yield from _create()
    yield from _grow()
    yield from _delete()
    yield from _topic_configs()
    yield from _broker_configs()
    yield from _group_configs()
    yield from _describe_refusals()
    yield from _metadata()
    yield from cluster_steps()


def _create() -> Iterator[Step]:
    yield create("one", topic("p", 2))
    yield create("again", topic("p"))
    yield create("twice in a request", topic("d"), topic("d", 2))
    yield create("bad names", *map(topic, ["", ".", "..", "a/b", "x" * 250, "a b"]))
    yield create("a dot", topic("a.b"))
    yield create("a collision", topic("a_b"))
    yield create("bad numbers", topic("n", 0), topic("o", -2), topic("q", 1, 0), topic("r", 1, 2))
    yield create(
        "by hand",
        topic("m1", assignments=[(0, [1])]),
        topic("m4", assignments=[(0, [2])]),
        topic("m5", assignments=[(0, [])]),
        topic("m6", assignments=[(1, [1])]),
        topic("m7", assignments=[(0, [1, 1])]),
        topic("m8", assignments=[(0, [1]), (0, [1])]),
    )
    bad_values = {
        "nope": "1",
        "retention.ms": "x",
        "cleanup.policy": "foo",
        "compression.type": "none",
        "segment.bytes": "10",
        "remote.storage.enable": "true",
        "min.cleanable.dirty.ratio": "1.5",
        "leader.replication.throttled.replicas": "foo",
        "compression.gzip.level": "0",
        "compression.zstd.level": "23",
        "preallocate": "maybe",
        "flush.ms": "9223372036854775808",
        "max.message.bytes": "-1",
        "message.timestamp.type": "Never",
    }
    for name, value in bad_values.items():
        yield create(f"with {name}={value}", topic("c", configs={name: value}))
    yield create("with null", topic("c", configs={"retention.ms": None}))
    lags = {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}
    yield create("with a conflict", topic("c", configs=lags))
    yield create("with doubles", topic("c1", configs={"cleanup.policy": "delete,delete"}))
    yield create("with an empty list", topic("c2", configs={"cleanup.policy": ""}))
    yield create("with an internal config", topic("c3", configs={"internal.segment.bytes": "99"}))
    yield create("as a trial", topic("v", 3), validate_only=True)
    # Kafka refuses more than 10,000 in one request, we more than 20,000.
    yield create("too many", topic("v", 20_001))
    yield create("too many together", topic("v", 10_000), topic("w", 10_001))
    yield create("the metadata topic", topic("__cluster_metadata"))
    for version in range(2, 8):
        yield create(f"v{version}", topic(f"v{version}"), version=version)


def _grow() -> Iterator[Step]:
    yield grow("by one", ("p", 3, None))
    yield grow("by none", ("p", 3, None))
    yield grow("down", ("p", 1, None))
    yield grow("to less than nothing", ("p", -1, None))
    yield grow("what is not there", ("unknown", 3, None))
    yield grow("twice in a request", ("p", 4, None), ("p", 5, None))
    yield grow("with too few assignments", ("p", 5, [[1]]))
    yield grow("by hand", ("p", 4, [[1]]))
    yield grow("on an unknown broker", ("p", 5, [[9]]))
    yield grow("on a broker twice", ("p", 5, [[1, 1]]))
    yield grow("on no broker", ("p", 5, [[]]))
    yield grow("as a trial", ("p", 9, None), validate_only=True)
    yield grow("v0", ("p", 5, None), version=0)


def _delete() -> Iterator[Step]:
    yield create("to delete", topic("d1"), topic("d2"), topic("d3"))
    yield delete("twice in a request", 4, "d1", "d1")
    yield delete("unknown", 4, "unknown")
    yield delete("v4", 4, "d1")
    yield delete("v1", 1, "d2")
    yield delete("gone", 1, "d2")
    yield delete("neither name nor id", 6, None)
    yield delete("unknown id", 6, UUID(int=5))
    yield delete("by name", 6, "d3")
    yield delete("bad name", 6, "a/b")


def _topic_configs() -> Iterator[Step]:
    yield change("set", TOPIC, "p", (SET, "retention.ms", "1000"))
    yield describe("set", TOPIC, "p", "retention.ms")
    yield change("bad value", TOPIC, "p", (SET, "retention.ms", "x"))
    yield change("unknown name", TOPIC, "p", (SET, "nope", "x"))
    yield change("null", TOPIC, "p", (SET, "retention.ms", None))
    yield change("one name twice", TOPIC, "p", (SET, "flush.ms", "1"), (SET, "flush.ms", "2"))
    yield change("unknown topic", TOPIC, "unknown", (SET, "retention.ms", "1"))
    yield change("unknown topic, bad value", TOPIC, "unknown", (SET, "retention.ms", "x"))
    yield change("no topic", TOPIC, "", (SET, "retention.ms", "1"))
    yield change("bad topic", TOPIC, "a/b", (SET, "retention.ms", "1"))
    yield change("append", TOPIC, "p", (APPEND, "cleanup.policy", "compact"))
    yield describe("appended", TOPIC, "p", "cleanup.policy")
    yield change("subtract", TOPIC, "p", (SUBTRACT, "cleanup.policy", "delete"))
    yield describe("subtracted", TOPIC, "p", "cleanup.policy")
    yield change("subtract the last", TOPIC, "p", (SUBTRACT, "cleanup.policy", "compact"))
    yield describe("nothing left", TOPIC, "p", "cleanup.policy")
    yield change("append to a number", TOPIC, "p", (APPEND, "retention.ms", "5"))
    yield change("append a bad value", TOPIC, "p", (APPEND, "cleanup.policy", "foo"))
    yield change("append to unknown", TOPIC, "p", (APPEND, "nope", "foo"))
    yield change("delete", TOPIC, "p", (DELETE, "cleanup.policy", None))
    yield change("delete unset", TOPIC, "p", (DELETE, "flush.ms", None))
    yield change("delete unknown", TOPIC, "p", (DELETE, "nope", None))
    yield change("as a trial", TOPIC, "p", (SET, "flush.ms", "7"), validate_only=True)
    yield describe("all of a topic", TOPIC, "p")
    for kind in (0, 3, 99):
        yield change(f"type {kind}", kind, "p", (SET, "flush.ms", "7"))
    yield replace("all", TOPIC, "p", flush_ms="9")
    yield describe("replaced", TOPIC, "p", "flush.ms", "retention.ms")
    yield replace("null", TOPIC, "p", flush_ms=None)
    yield replace("bad value", TOPIC, "p", flush_ms="x")
    yield replace("unknown topic", TOPIC, "unknown", flush_ms="1")
    yield replace("type 8", LOGGER, "1", root="INFO")
    yield replace("by nothing", TOPIC, "p")
    yield describe("internal config", TOPIC, "c3")
    yield describe("doubles", TOPIC, "c1", "cleanup.policy")


def _broker_configs() -> Iterator[Step]:
    yield change("all brokers", BROKER, "", (SET, "log.retention.ms", "5000"))
    yield change("one broker", BROKER, "1", (SET, "log.retention.ms", "6000"))
    names = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    yield describe("one broker", BROKER, "1", *names)
    yield describe("all brokers", BROKER, "", "log.retention.ms")
    yield describe("topic under broker configs", TOPIC, "p", "retention.ms")
    yield change("read-only", BROKER, "1", (SET, "num.partitions", "5"))
    yield change("bad value", BROKER, "1", (SET, "log.retention.ms", "x"))
    yield change("out of range", BROKER, "1", (SET, "log.segment.bytes", "5"))
    yield change("unknown", BROKER, "1", (SET, "my.plugin.level", "x"))
    yield describe("unknown", BROKER, "1", "my.plugin.level")
    yield change("security", BROKER, "", (SET, "ssl.keystore.location", "x"))
    yield change("another broker", BROKER, "2", (SET, "log.retention.ms", "5"))
    yield change("no number", BROKER, "x", (SET, "log.retention.ms", "5"))
    yield change("null", BROKER, "1", (SET, "log.retention.ms", None))
    yield change("append", BROKER, "1", (APPEND, "log.cleanup.policy", "compact"))
    yield describe("appended to a broker", BROKER, "1", "log.cleanup.policy")
    yield change("append to a number", BROKER, "1", (APPEND, "log.retention.ms", "5"))
    yield change("append to unknown", BROKER, "1", (APPEND, "nope", "5"))
    yield change("bad operation", BROKER, "1", (9, "log.retention.ms", "5"))
    yield change("per listener", BROKER, "1", (SET, "listener.name.x.max.connections", "x"))
    yield change("throttle", BROKER, "1", (SET, "leader.replication.throttled.rate", "1000"))
    yield describe("throttled", BROKER, "1", "leader.replication.throttled.rate")
    yield replace("read-only", BROKER, "1", num_partitions="7")
    yield replace("one broker by nothing", BROKER, "1")
    yield change("back", BROKER, "", (DELETE, "log.retention.ms", None))
    yield describe("back to defaults", BROKER, "1", *names)


def _group_configs() -> Iterator[Step]:
    """Settings of groups that do not exist: they may be set before the group forms."""
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    yield describe("a group without settings", GROUP, "g")
    yield change("group", GROUP, "g", (SET, session, "50000"), (SET, heartbeat, "6000"))
    yield describe("group", GROUP, "g", session, heartbeat)
    names = [
        f"{kind}.{setting}"
        for kind in ("consumer", "share", "streams")
        for setting in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    ]
    names += ["share.record.lock.duration.ms", "share.delivery.count.limit"]
    names += ["share.partition.max.record.locks", "streams.num.standby.replicas"]
    names += ["streams.initial.rebalance.delay.ms", "share.isolation.level"]
    names += ["share.auto.offset.reset", "share.renew.acknowledge.enable", "nope"]
    for name in names:
        for value in ("-1", "0", "1", "3", "2000000000", "x"):
            yield change(f"{name}={value}", GROUP, "g", (SET, name, value), validate_only=True)
    for value in ("by_duration:P1DT2H", "by_duration:P", "by_duration:PT", "earliest", "LATEST"):
        yield change(f"reset {value}", GROUP, "g", (SET, "share.auto.offset.reset", value))
    yield change("group, null", GROUP, "g", (SET, session, None))
    yield change("append to a group", GROUP, "g", (APPEND, session, "1"))
    yield change("append unknown to a group", GROUP, "g", (APPEND, "nope", "1"))
    yield change("delete unknown of a group", GROUP, "g", (DELETE, "nope", None))
    yield change("no group", GROUP, "", (SET, session, "50000"))
    yield describe("no group", GROUP, "")
    yield read("groups with settings", 74, 1, resource_types=[GROUP])
    yield describe("all of a group", GROUP, "g")
    yield replace("group", GROUP, "g", consumer_heartbeat_interval_ms="7000")
    yield replace("group, unknown name", GROUP, "g", nope="1")
    yield describe("group replaced", GROUP, "g", session, heartbeat)
    yield replace("group by nothing", GROUP, "g")
    yield read("no groups with settings", 74, 1, resource_types=[GROUP])


def _describe_refusals() -> Iterator[Step]:
    yield describe("without synonyms", TOPIC, "p", "retention.ms", synonyms=False)
    yield describe("v1", TOPIC, "p", "retention.ms", version=1)
    yield describe("unknown key", TOPIC, "p", "nope")
    yield describe("unknown topic", TOPIC, "unknown")
    with_unknown = [
        Struct(resource_type=kind, resource_name="p", configuration_keys=["retention.ms"])
        for kind in (TOPIC, 1)
    ]
    request = Struct(resources=with_unknown, include_synonyms=False, include_documentation=False)
    yield Step("describe with an unknown type", 32, 4, request, reads=True)
    yield describe("bad topic", TOPIC, "a/b")
    yield describe("no topic", TOPIC, "")
    yield describe("another broker", BROKER, "2")
    yield describe("no number", BROKER, "x")
    for kind in (0, 3, 99):
        yield describe(f"type {kind}", kind, "x")
    yield change("logger", LOGGER, "1", (SET, "root", "WARN"))
    yield describe("logger", LOGGER, "1", "root")
    yield change("bad level", LOGGER, "1", (SET, "root", "LOUD"))
    yield change("unknown logger", LOGGER, "1", (SET, "nope.x", "INFO"))
    yield change("another broker's logger", LOGGER, "2", (SET, "root", "INFO"))
    yield describe("another broker's logger", LOGGER, "2", "root")
    yield describe("nobody's logger", LOGGER, "", "root")


def _metadata() -> Iterator[Step]:
    for version in range(14):
        yield metadata("known", version, "p")
    yield metadata("unknown", 13, "unknown")
    yield metadata("bad names", 13, "a/b", "")
    yield metadata("bad name, auto", 13, "a/b", auto=True)
    yield metadata("twice", 13, "p", "p")
    yield metadata("internal", 13, "__cluster_metadata", "__transaction_state")
    yield metadata("created by asking", 13, "auto", auto=True)
    unknown_id = [Struct(name=None, topic_id=UUID(int=9))]
    yield read("metadata unknown id", 3, 12, topics=unknown_id, allow_auto_topic_creation=False)
    yield read("metadata nothing", 3, 1, topics=[])
    yield page("one topic", ["p"])
    yield page("first of all", [], limit=1)
    yield page("limit", ["v2", "p"], limit=1)
    yield page("limit 0", ["v2", "p"], limit=0)
    yield page("from a cursor", ["v2", "p"], limit=5, cursor=cursor("p", 1))
    yield page("cursor nowhere", ["v2", "p"], cursor=cursor("pp", 1))
    yield page("cursor below 0", ["p"], cursor=cursor("p", -1))
    yield page("cursor beyond", ["p"], cursor=cursor("p", 77))
    yield page("unknown", ["zzz", "p"])
    yield page("bad name", ["a/b"])
