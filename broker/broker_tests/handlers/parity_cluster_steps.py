"""Steps about the cluster: moves, elections, features, users and quotas, and rarer requests."""

from collections.abc import Iterator, Sequence

from broker_tests.handlers.parity_requests import BROKER, LOGGER, TOPIC, Step, read
from odradek_protocol.messages.struct import Struct


def cluster_steps() -> Iterator[Step]:
    yield from _moves()
    yield from _elections()
    yield from _features()
    yield from _others()


def _move(
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
        yield _move("unknown topic", ("nobody", 0, [1]), version=version)
        yield _move("unknown partition", ("p", 77, [1]), version=version)
        yield _move("to nobody", ("p", 0, []), version=version)
        yield _move("to an unknown broker", ("p", 0, [1, 9]), version=version)
        yield _move("to a negative broker", ("p", 0, [-1]), version=version)
        yield _move("to one broker twice", ("p", 0, [1, 1]), version=version)
        yield _move("cancel nothing", ("p", 0, None), version=version)
        yield _move("to where it is", ("p", 0, [1]), version=version)
    yield _move("some of each", ("p", 0, [1]), ("p", 1, [2]), ("q", 0, None))
    for replicas in ([1], [], [1, 9], [1, 1], None):
        target = ("p", 0, replicas)
        yield _move(f"keep the factor: {replicas}", target, may_change_factor=False)
    yield _move("keep the factor of nothing", ("nobody", 0, [1]), may_change_factor=False)
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
