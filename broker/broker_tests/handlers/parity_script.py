"""Admin requests that are sent to our broker and to Apache Kafka, in this order.

Each step is one request, with a label for the report. Steps build on each other (a topic is
created, changed, deleted). Answers must be equal after `test_admin_parity.py` has taken out
what cannot be (ids, ports, times).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from odradek_protocol.messages.struct import Struct

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[int, str, str | None]


class Step(NamedTuple):
    label: str
    api_key: int
    version: int
    request: Struct
    reads: bool = False  # Apache Kafka may need a moment until a read shows the last write


def topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> Struct:
    return Struct(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replication_factor,
        assignments=[Struct(partition_index=i, broker_ids=list(b)) for i, b in assignments],
        configs=[Struct(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(label: str, *topics: Struct, version: int = 7, validate_only: bool = False) -> Step:
    request = Struct(topics=list(topics), timeout=10_000, validate_only=validate_only)
    return Step(f"create {label}", 19, version, request)


def grow(
    label: str,
    *topics: tuple[str, int, list[list[int]] | None],
    version: int = 3,
    validate_only: bool = False,
) -> Step:
    asked = [
        Struct(name=n, count=c, assignments=a and [Struct(broker_ids=b) for b in a])
        for n, c, a in topics
    ]
    request = Struct(topics=asked, timeout=10_000, validate_only=validate_only)
    return Step(f"grow {label}", 37, version, request)


def delete(label: str, version: int, *topics: str | UUID | None) -> Step:
    if version < 6:
        return Step(
            f"delete {label}", 20, version, Struct(topic_names=list(topics), timeout=10_000)
        )
    asked = [
        Struct(name=None, topic_id=t) if isinstance(t, UUID) else Struct(name=t, topic_id=None)
        for t in topics
    ]
    return Step(f"delete {label}", 20, version, Struct(topics=asked, timeout=10_000))


def change(label: str, kind: int, name: str, *changes: Change, validate_only: bool = False) -> Step:
    resource = Struct(
        resource_type=kind,
        resource_name=name,
        configs=[Struct(name=k, config_operation=o, value=v) for o, k, v in changes],
    )
    request = Struct(resources=[resource], validate_only=validate_only)
    return Step(f"change {label}", 44, 1, request)


def replace(label: str, kind: int, name: str, **configs: str | None) -> Step:
    resource = Struct(
        resource_type=kind,
        resource_name=name,
        configs=[Struct(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )
    request = Struct(resources=[resource], validate_only=False)
    return Step(f"replace {label}", 33, 2, request)


def describe(
    label: str, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True
) -> Step:
    resource = Struct(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = Struct(resources=[resource], include_synonyms=synonyms, include_documentation=False)
    return Step(f"describe {label}", 32, version, request, reads=True)


def metadata(label: str, version: int, *names: str, auto: bool = False) -> Step:
    request = Struct(
        topics=[Struct(name=name, topic_id=None) for name in names],
        allow_auto_topic_creation=auto,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    return Step(f"metadata {label} v{version}", 3, version, request, reads=True)


def page(label: str, names: Sequence[str], limit: int = 2000, cursor: Struct | None = None) -> Step:
    request = Struct(
        topics=[Struct(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    return Step(f"page {label}", 75, 0, request, reads=True)


def cursor(name: str, partition: int) -> Struct:
    return Struct(topic_name=name, partition_index=partition)


def read(label: str, api_key: int, version: int, **fields: object) -> Step:
    return Step(label, api_key, version, Struct(**fields), reads=True)


def steps() -> Iterator[Step]:
    yield from _create()
    yield from _grow()
    yield from _delete()
    yield from _topic_configs()
    yield from _broker_configs()
    yield from _group_configs()
    yield from _describe_refusals()
    yield from _metadata()
    yield from _moves()
    yield from _elections()
    yield from _features()
    yield from _others()


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
    """Of groups that do not exist: their settings may come first."""
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


def move(
    label: str,
    *targets: tuple[str, int, list[int] | None],
    version: int = 1,
    may_change_factor: bool = True,
) -> Step:
    asked = [
        Struct(name=name, partitions=[Struct(partition_index=index, replicas=replicas)])
        for name, index, replicas in targets
    ]
    request = Struct(
        topics=asked, timeout=10_000, allow_replication_factor_change=may_change_factor
    )
    return Step(f"move {label}", 45, version, request)


def _moves() -> Iterator[Step]:
    for version in (0, 1):
        yield move("unknown topic", ("nobody", 0, [1]), version=version)
        yield move("unknown partition", ("p", 77, [1]), version=version)
        yield move("to nobody", ("p", 0, []), version=version)
        yield move("to an unknown broker", ("p", 0, [1, 9]), version=version)
        yield move("to a negative broker", ("p", 0, [-1]), version=version)
        yield move("to one broker twice", ("p", 0, [1, 1]), version=version)
        yield move("cancel nothing", ("p", 0, None), version=version)
        yield move("to where it is", ("p", 0, [1]), version=version)
    yield move("some of each", ("p", 0, [1]), ("p", 1, [2]), ("q", 0, None))
    for replicas in ([1], [], [1, 9], [1, 1], None):
        target = ("p", 0, replicas)
        yield move(f"keep the factor: {replicas}", target, may_change_factor=False)
    yield move("keep the factor of nothing", ("nobody", 0, [1]), may_change_factor=False)
    yield Step("move nothing", 45, 1, Struct(topics=[], timeout=10_000))


def _elections() -> Iterator[Step]:
    for version in range(3):
        for kind in (0, 1) if version else (0,):
            for name, index in (("p", 0), ("p", 77), ("nobody", 0)):
                asked = [Struct(topic=name, partitions=[index])]
                fields = {"topic_partitions": asked, "timeout": 10_000}
                if version:
                    fields["election_type"] = kind
                label = f"elect v{version} kind {kind} {name}-{index}"
                yield Step(label, 43, version, Struct(**fields))
    yield Step(
        "elect everywhere", 43, 2, Struct(election_type=0, topic_partitions=None, timeout=10_000)
    )
    asked = [Struct(topic="p", partitions=[0])]
    yield Step(
        "elect somehow", 43, 2, Struct(election_type=7, topic_partitions=asked, timeout=10_000)
    )
    yield Step("unregister an unknown broker", 64, 0, Struct(broker_id=77))


def _features() -> Iterator[Step]:
    for name, level, kind in (
        ("metadata.version", 30, 1),
        ("metadata.version", 29, 1),
        ("metadata.version", 3, 2),
        ("metadata.version", 99, 1),
        ("metadata.version", -1, 1),
        ("metadata.version", 30, 2),
        ("metadata.version", 7, 3),
        ("metadata.version", 7, 2),
        ("metadata.version", 29, 2),
        ("metadata.version", 30, 9),
        ("no.such.feature", 1, 1),
        ("no.such.feature", 0, 1),
    ):
        for version in (1, 2):
            update = Struct(feature=name, max_version_level=level, upgrade_type=kind)
            request = Struct(feature_updates=[update], timeout=10_000, validate_only=True)
            yield Step(f"feature {name} {level} kind {kind} v{version}", 57, version, request)


def _others() -> Iterator[Step]:
    for version in range(3):
        yield read(f"cluster v{version}", 60, version, include_cluster_authorized_operations=True)
    for kind in (2, 3):
        yield read(f"cluster endpoint {kind}", 60, 1, endpoint_type=kind)
    yield read("config resources", 74, 0)
    for kind in (TOPIC, BROKER, LOGGER, 16, 99):
        yield read(f"config resources {kind}", 74, 1, resource_types=[kind])
    yield read("reassignments", 46, 0, timeout=1000, topics=None)
    asked = [Struct(name="p", partition_indexes=[0]), Struct(name="zz", partition_indexes=[0])]
    yield read("reassignments of topics", 46, 0, timeout=1000, topics=asked)
    acl = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield read("acls", 29, 3, **acl)
    yield read("delete acls", 31, 3, filters=[Struct(**acl)])
    creation = Struct(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    yield read("create acls", 30, 3, creations=[creation])
    for entity, match_type in (("user", 2), ("user", 0), ("user", 9), ("foo", 2)):
        component = Struct(entity_type=entity, match_type=match_type, match=None)
        label = f"quotas {entity} {match_type}"
        yield read(label, 48, 1, components=[component], strict=False)
    yield from _scram()
    yield from _client_quotas()
    yield read("scram users", 50, 0, users=None)
    users = [Struct(name="bob"), Struct(name="al"), Struct(name="al")]
    yield read("scram of users", 50, 0, users=users)
    partition = [Struct(partition_index=1)]
    unknown = [Struct(topic_name="__cluster_metadata", partitions=partition)]
    yield read("quorum of nothing", 55, 2, topics=unknown)
    for version in range(1, 6):
        asked = [Struct(topic="p", partitions=[0, 99])]
        yield read(f"log dirs v{version}", 35, version, topics=asked)
    yield read("log dirs of nothing", 35, 4, topics=[])
    yield read("coordinator of a bad type", 10, 4, key_type=9, coordinator_keys=["g"])
    yield read("coordinator of a share group", 10, 6, key_type=2, coordinator_keys=["g"])


def _scram() -> Iterator[Step]:
    """One user per request: Kafka orders the results of several by their hash."""
    for name, mechanism, iterations in (
        ("carol", 1, 4096),
        ("carol", 2, 16384),
        ("carol", 1, 4095),
        ("carol", 1, 16385),
        ("carol", 3, 4096),
        ("", 1, 4096),
    ):
        change = Struct(
            name=name,
            mechanism=mechanism,
            iterations=iterations,
            salt=b"salt",
            salted_password=b"x" * 32,
        )
        label = f"set scram {name} {mechanism} {iterations}"
        yield Step(label, 51, 0, Struct(deletions=[], upsertions=[change]))
    yield Step("set scram twice", 51, 0, Struct(deletions=[], upsertions=[change, change]))
    yield read("scram of carol", 50, 0, users=[Struct(name="carol")])
    for name, mechanism in (("carol", 1), ("carol", 1), ("dave", 2), ("", 1), ("carol", 0)):
        deletion = Struct(name=name, mechanism=mechanism)
        label = f"delete scram {name} {mechanism}"
        yield Step(label, 51, 0, Struct(deletions=[deletion], upsertions=[]))
    last = Struct(name="carol", mechanism=2)
    yield Step("delete the last scram", 51, 0, Struct(deletions=[last], upsertions=[]))


def _client_quotas() -> Iterator[Step]:
    user, client, ip = ("user", "u"), ("client-id", "c"), ("ip", "10.1.2.3")
    for label, entity, ops in (
        ("user", [user], [("producer_byte_rate", 1024.0)]),
        ("default user", [("user", None)], [("consumer_byte_rate", 7.0)]),
        ("pair", [user, client], [("request_percentage", 12.5)]),
        ("client", [client], [("controller_mutation_rate", 0.5)]),
        ("ip", [ip], [("connection_creation_rate", 3.0)]),
        ("no entity", [], [("producer_byte_rate", 1024.0)]),
        ("empty name", [("user", "")], [("producer_byte_rate", 1024.0)]),
        ("type", [("group", "g")], [("producer_byte_rate", 1024.0)]),
        ("ip and user", [user, ip], [("producer_byte_rate", 1024.0)]),
        ("not an ip", [("ip", "1.2.3.256")], [("connection_creation_rate", 1.0)]),
        ("key", [user], [("nope", 1.0)]),
        ("key of an ip", [user], [("connection_creation_rate", 1.0)]),
        ("zero", [user], [("producer_byte_rate", 0.0)]),
        ("negative", [user], [("request_percentage", -1.0)]),
        ("fraction", [user], [("producer_byte_rate", 1.5)]),
        ("fraction of an ip", [ip], [("connection_creation_rate", 1.5)]),
        ("large", [user], [("producer_byte_rate", 1e19)]),
        ("large for an ip", [ip], [("connection_creation_rate", 3e9)]),
        ("twice", [client], [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)]),
    ):
        for version in (0, 1):
            request = _quota_request(entity, ops)
            yield Step(f"set quota: {label} v{version}", 49, version, request)
    for match_type, match in ((0, "u"), (0, "nobody"), (1, None), (2, None), (1, "u"), (2, "u")):
        for strict in (False, True):
            component = Struct(entity_type="client-id", match_type=match_type, match=match)
            label = f"quotas of client {match_type} {match} {strict}"
            yield read(label, 48, 1, components=[component], strict=strict)
    both = [Struct(entity_type=kind, match_type=2, match=None) for kind in ("user", "client-id")]
    yield read("quotas of pairs", 48, 1, components=both, strict=True)
    odd = [Struct(entity_type=kind, match_type=2, match=None) for kind in ("user", "ip")]
    yield read("quotas of users and ips", 48, 1, components=odd, strict=False)
    yield read("quotas of users twice", 48, 1, components=both[:1] * 2, strict=False)
    yield read("quotas of no type", 48, 1, components=[Struct(entity_type="", match_type=2,
               match=None)], strict=False)  # fmt: skip
    yield read("quotas, strict about nothing", 48, 1, components=[], strict=True)
    for entity, key in (
        ([user], "producer_byte_rate"),
        ([user], "producer_byte_rate"),
        ([("user", None)], "consumer_byte_rate"),
        ([user, client], "request_percentage"),
        ([client], "controller_mutation_rate"),
        ([ip], "connection_creation_rate"),
        ([user], "nope"),
    ):
        yield Step(f"remove quota {entity} {key}", 49, 1, _quota_request(entity, [(key, None)]))


def _quota_request(
    entity: Sequence[tuple[str, str | None]], ops: Sequence[tuple[str, float | None]]
) -> Struct:
    entry = Struct(
        entity=[Struct(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[Struct(key=key, value=limit or 0.0, remove=limit is None) for key, limit in ops],
    )
    return Struct(entries=[entry], validate_only=False)
