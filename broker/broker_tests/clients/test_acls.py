"""ACLs with real processes: Kafka's own kafka-acls, refused clients, and a restart.

On a plaintext listener every client is User:ANONYMOUS, so addresses distinguish them:
127.0.0.1 is the administrator, 127.0.0.2 the client that needs ACLs.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.api import decode_response, encode_request, flexible, request_header
from odradek_protocol.messages.struct import Struct
from odradek_testkit.engines import Server, engine, kafka_tool, on_apache
from odradek_testkit.raw_requests import RawConnection, batch
from odradek_testkit.waiting import wait_until

ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}
PRODUCE, FETCH, METADATA, CREATE_TOPICS, DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = (
    0,
    1,
    3,
    19,
    29,
    30,
    31,
)
OFFSET_COMMIT, OFFSET_FETCH = 8, 9
FIND_COORDINATOR, HEARTBEAT = 10, 68  # of members of the consumer protocol
LOADING = (
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
)
TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, WRITE, DESCRIBE, ALL = 3, 4, 8, 2
DENY, ALLOW = 2, 3


def connect(server: Server, host: str) -> socket.socket:
    return socket.create_connection((ADMIN, server.port), timeout=20, source_address=(host, 0))


def ask_on(connection: socket.socket, api_key: int, version: int, **fields: object) -> Any:
    frame = request_header(api_key, version, 1, "test")
    frame += encode_request(api_key, version, Struct(**fields))
    answer = RawConnection(connection).ask(frame)
    return decode_response(api_key, version, answer, 5 if flexible(api_key, version) else 4)


def ask(server: Server, host: str, api_key: int, version: int, **fields: object) -> Any:
    with connect(server, host) as connection:
        return ask_on(connection, api_key, version, **fields)


def acl(kind: int, name: str, host: str, operation: int, permission: int = ALLOW) -> Struct:
    return Struct(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create(server: Server, *acls: Struct) -> None:
    """Returns when they apply: Apache Kafka's broker gets them from its controller."""
    answer = ask(server, ADMIN, CREATE_ACLS, 3, creations=list(acls))
    assert [one.error_code for one in answer.results] == [ErrorCode.none] * len(acls)
    new = {(one.resource_type, one.resource_name, one.host, one.operation) for one in acls}
    wait_until(lambda: new <= set(described(server)))


def filter_(**given: object) -> dict[str, object]:
    everything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return {**everything, **given}


def described(server: Server, **given: object) -> list[tuple[int, str, str, int]]:
    answer = ask(server, ADMIN, DESCRIBE_ACLS, 3, **filter_(**given))
    return sorted(
        (one.resource_type, one.resource_name, entry.host, entry.operation)
        for one in answer.resources
        for entry in one.acls
    )


def produce_on(connection: socket.socket, topic: str) -> ErrorCode:
    data = [Struct(index=0, records=batch(b"x"))]
    topic_data = [Struct(name=topic, partition_data=data)]
    answer = ask_on(
        connection, PRODUCE, 9, acks=1, timeout=5000, transactional_id=None, topic_data=topic_data
    )
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def produce(server: Server, host: str, topic: str) -> ErrorCode:
    with connect(server, host) as connection:
        return produce_on(connection, topic)


def fetch_on(connection: socket.socket, topic: str) -> ErrorCode:
    wanted = Struct(
        partition=0, current_leader_epoch=-1, fetch_offset=0, log_start_offset=-1,
        partition_max_bytes=1000,
    )  # fmt: skip
    answer = ask_on(
        connection, FETCH, 11, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1000,
        isolation_level=0, session_id=0, session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[Struct(topic=topic, partitions=[wanted])],
    )  # fmt: skip
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def topics_seen(server: Server, host: str, *names: str) -> dict[str, ErrorCode]:
    asked = [Struct(name=name, topic_id=None) for name in names] if names else None
    answer = ask(server, host, METADATA, 9, topics=asked, allow_auto_topic_creation=False)
    return {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}


def assigned_topics(server: Server, host: str, group: str, expression: str) -> set[str]:
    """Joins a group of the consumer protocol, and asks until it has topics to read."""
    metadata = ask(server, ADMIN, METADATA, 12, topics=None)
    names = {topic.topic_id: topic.name for topic in metadata.topics}
    member = {"group_id": group, "member_id": "m", "rebalance_timeout": 60_000}
    wanted = {"subscribed_topic_regex": expression, "topic_partitions": []}
    found: set[str] = set()
    epoch = 0

    def has_topics() -> bool:
        nonlocal epoch
        if epoch == 0:  # which creates the internal topic
            ask(server, ADMIN, FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
        more = wanted if epoch == 0 else {}
        answer = ask(server, host, HEARTBEAT, 1, **member, member_epoch=epoch, **more)
        if answer.error_code not in LOADING:
            assert not answer.error_code, answer
            epoch = answer.member_epoch
        if answer.assignment is not None:
            found.update(names[one.topic_id] for one in answer.assignment.topic_partitions)
        return bool(found)

    wait_until(has_topics, deadline_s=60)
    return found


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    """With two topics, and an administrator who has every right."""
    with engine()(SETTINGS, directory=tmp_path) as server:
        topics = [
            Struct(name=n, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for n in ("orders", "secret")
        ]
        ask(server, ADMIN, CREATE_TOPICS, 7, topics=topics, timeout=5000, validate_only=False)
        kinds = ((TOPIC, "*"), (GROUP, "*"), (CLUSTER, "kafka-cluster"))
        create(server, *(acl(kind, name, ADMIN, ALL) for kind, name in kinds))
        yield server


def test_acls_are_granted_revoked_and_survive_a_restart(broker: Server) -> None:
    """1. without a right nothing is written and nothing is seen; 2. WRITE of one topic gives that,
    and DESCRIBE with it; 3. a restart keeps it; 4. DENY wins; 5. deleted, all is as before."""
    denied, allowed = ErrorCode.topic_authorization_failed, ErrorCode.none
    assert produce(broker, CLIENT, "orders") is denied
    assert topics_seen(broker, CLIENT) == {}
    assert topics_seen(broker, CLIENT, "orders", "nothing") == {"orders": denied, "nothing": denied}

    create(broker, acl(TOPIC, "orders", CLIENT, WRITE))
    assert produce(broker, CLIENT, "orders") is allowed
    assert produce(broker, CLIENT, "secret") is denied
    assert topics_seen(broker, CLIENT) == {"orders": allowed}

    broker.restart()
    assert produce(broker, CLIENT, "orders") is allowed
    assert produce(broker, CLIENT, "secret") is denied

    create(broker, acl(TOPIC, "orders", "*", WRITE, DENY))
    assert produce(broker, CLIENT, "orders") is denied
    assert produce(broker, ADMIN, "orders") is denied

    answer = ask(broker, ADMIN, DELETE_ACLS, 3, filters=[Struct(**filter_(permission_type=DENY))])
    assert [len(one.matching_acls) for one in answer.filter_results] == [1]
    wait_until(lambda: not described(broker, permission_type=DENY))
    assert produce(broker, CLIENT, "orders") is allowed
    assert described(broker, host_filter=CLIENT) == [(TOPIC, "orders", CLIENT, WRITE)]


def test_a_right_is_revoked_on_connections_that_are_open(broker: Server) -> None:
    """1. a connection writes and reads; 2. its right to read is deleted: it reads no more;
    3. a DENY of writing: it writes no more; 4. without the DENY it writes again."""
    denied, allowed = ErrorCode.topic_authorization_failed, ErrorCode.none
    create(broker, *(acl(TOPIC, "orders", CLIENT, operation) for operation in (READ, WRITE)))
    with connect(broker, CLIENT) as connection:
        for _ in range(2):  # the second time from memory
            assert produce_on(connection, "orders") is allowed
            assert fetch_on(connection, "orders") is allowed
            assert produce_on(connection, "secret") is denied

        only_read = Struct(**filter_(host_filter=CLIENT, operation=READ))
        ask(broker, ADMIN, DELETE_ACLS, 3, filters=[only_read])
        wait_until(lambda: len(described(broker, host_filter=CLIENT)) == 1)
        assert fetch_on(connection, "orders") is denied
        assert produce_on(connection, "orders") is allowed

        create(broker, acl(TOPIC, "orders", CLIENT, WRITE, DENY))
        assert produce_on(connection, "orders") is denied
        ask(broker, ADMIN, DELETE_ACLS, 3, filters=[Struct(**filter_(permission_type=DENY))])
        wait_until(lambda: not described(broker, permission_type=DENY))
        assert produce_on(connection, "orders") is allowed


def test_a_group_that_is_named_twice_shows_no_hidden_topic(broker: Server) -> None:
    """The attack: OffsetFetch of a group with one topic and, in the same request, of the same group
    with all topics, so that the rights of one entry are applied to the other."""
    group = {"group_id": "readers", "member_id": "", "generation_id_or_member_epoch": -1}
    partition = Struct(
        partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata=""
    )
    committed = [Struct(name=name, partitions=[partition]) for name in ("orders", "secret")]

    def commits() -> bool:
        ask(broker, ADMIN, FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["readers"])
        answer = ask(
            broker, ADMIN, OFFSET_COMMIT, 8, **group, group_instance_id=None, topics=committed
        )
        codes = {topic.partitions[0].error_code for topic in answer.topics}
        assert codes <= {ErrorCode.none, *LOADING}, codes
        return codes == {ErrorCode.none}

    wait_until(commits, deadline_s=60)
    create(broker, acl(GROUP, "readers", CLIENT, DESCRIBE), acl(TOPIC, "orders", CLIENT, DESCRIBE))
    named = Struct(
        group_id="readers", topics=[Struct(name="orders", partition_indexes=[0])],
        member_id=None, member_epoch=-1,
    )  # fmt: skip
    all_topics = Struct(group_id="readers", topics=None, member_id=None, member_epoch=-1)
    for asked in ([named, all_topics], [all_topics, named], [all_topics, all_topics]):
        answer = ask(broker, CLIENT, OFFSET_FETCH, 8, groups=asked, require_stable=False)
        assert len(answer.groups) == 2
        for one in answer.groups:
            seen = {topic.name: topic.partitions[0].committed_offset for topic in one.topics}
            assert seen == {"orders": 7}


def test_changing_acls_needs_alter_on_the_cluster(broker: Server) -> None:
    before = described(broker)
    answer = ask(broker, CLIENT, CREATE_ACLS, 3, creations=[acl(TOPIC, "*", CLIENT, ALL)])
    assert answer.results[0].error_code is ErrorCode.cluster_authorization_failed
    answer = ask(broker, CLIENT, DELETE_ACLS, 3, filters=[Struct(**filter_())])
    assert answer.filter_results[0].error_code is ErrorCode.cluster_authorization_failed
    answer = ask(broker, CLIENT, DESCRIBE_ACLS, 3, **filter_())
    assert answer.error_code is ErrorCode.cluster_authorization_failed
    assert described(broker) == before


def test_an_expression_matches_topics_that_the_member_may_describe(broker: Server) -> None:
    """1. a member with an expression that matches both topics gets the one that it may describe;
    2. another group, whose member is the administrator, gets both."""
    create(broker, acl(TOPIC, "orders", CLIENT, READ), acl(GROUP, "readers", CLIENT, READ))
    assert assigned_topics(broker, CLIENT, "readers", "orders|secret") == {"orders"}
    assert assigned_topics(broker, ADMIN, "others", "orders|secret") == {"orders", "secret"}


@pytest.mark.skipif(on_apache(), reason="reads the log of our broker")
def test_denials_go_to_the_authorizer_log(broker: Server) -> None:
    produce(broker, CLIENT, "secret")
    line = (
        "Principal = User:ANONYMOUS is Denied operation = WRITE from host = 127.0.0.2 on resource "
        "= Topic:LITERAL:secret for request = PRODUCE"
    )
    assert [one for one in broker.log().splitlines() if line in one]


@pytest.mark.java
def test_kafka_acls_unmodified(broker: Server) -> None:
    tool = "org.apache.kafka.tools.AclCommand"
    start = "--bootstrap-server", broker.bootstrap
    who = "--allow-principal", "User:alice", "--topic", "ord", "--resource-pattern-type", "prefixed"
    added = kafka_tool(tool, *start, "--add", *who, "--producer").stdout
    assert "operation=WRITE" in added
    listed = kafka_tool(tool, *start, "--list", "--principal", "User:alice").stdout
    assert listed.count("permissionType=ALLOW") == 3  # WRITE, DESCRIBE, CREATE
    assert "patternType=PREFIXED" in listed
    kafka_tool(tool, *start, "--remove", *who, "--producer", "--force")
    assert "User:alice" not in kafka_tool(tool, *start, "--list").stdout


@pytest.mark.java
def test_kafkas_tools_read_our_records(broker: Server) -> None:
    log = next(broker.data_dir.glob("**/__cluster_metadata-0/00000000000000000000.log"))
    dumped = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(log)
    ).stdout
    assert dumped.count("ACCESS_CONTROL_ENTRY_RECORD") == 3
