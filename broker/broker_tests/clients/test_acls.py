"""ACLs with real processes: Kafka's own kafka-acls, clients that are refused, and what is kept.

On a plaintext listener everybody is User:ANONYMOUS, so clients are told apart by their address:
127.0.0.1 administers, 127.0.0.2 is the client that needs rights.
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
from odradek_testkit.engines import RunningBroker, Server, kafka_tool
from odradek_testkit.raw_requests import RawConnection, batch

ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}
PRODUCE, METADATA, CREATE_TOPICS, DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 0, 3, 19, 29, 30, 31
TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, WRITE, DESCRIBE, ALL = 3, 4, 8, 2
DENY, ALLOW = 2, 3


def ask(server: Server, host: str, api_key: int, version: int, **fields: object) -> Any:
    with socket.create_connection(
        (ADMIN, server.port), timeout=20, source_address=(host, 0)
    ) as connection:
        frame = request_header(api_key, version, 1, "test")
        frame += encode_request(api_key, version, Struct(**fields))
        answer = RawConnection(connection).ask(frame)
    return decode_response(api_key, version, answer, 5 if flexible(api_key, version) else 4)


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
    answer = ask(server, ADMIN, CREATE_ACLS, 3, creations=list(acls))
    assert [one.error_code for one in answer.results] == [ErrorCode.none] * len(acls)


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


def produce(server: Server, host: str, topic: str) -> ErrorCode:
    data = [Struct(index=0, records=batch(b"x"))]
    answer = ask(
        server,
        host,
        PRODUCE,
        9,
        acks=1,
        timeout=5000,
        transactional_id=None,
        topic_data=[Struct(name=topic, partition_data=data)],
    )
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def topics_seen(server: Server, host: str, *names: str) -> dict[str, ErrorCode]:
    asked = [Struct(name=name, topic_id=None) for name in names] if names else None
    answer = ask(server, host, METADATA, 9, topics=asked, allow_auto_topic_creation=False)
    return {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """With two topics, and an administrator who has every right."""
    with RunningBroker(SETTINGS, directory=tmp_path) as server:
        topics = [
            Struct(name=n, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for n in ("orders", "secret")
        ]
        ask(server, ADMIN, CREATE_TOPICS, 7, topics=topics, timeout=5000, validate_only=False)
        kinds = ((TOPIC, "*"), (GROUP, "*"), (CLUSTER, "kafka-cluster"))
        create(server, *(acl(kind, name, ADMIN, ALL) for kind, name in kinds))
        yield server


def test_rights_are_given_taken_and_kept(broker: RunningBroker) -> None:
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
    assert produce(broker, CLIENT, "orders") is allowed
    assert described(broker, host_filter=CLIENT) == [(TOPIC, "orders", CLIENT, WRITE)]


def test_only_those_who_may_alter_the_cluster_change_acls(broker: RunningBroker) -> None:
    before = described(broker)
    answer = ask(broker, CLIENT, CREATE_ACLS, 3, creations=[acl(TOPIC, "*", CLIENT, ALL)])
    assert answer.results[0].error_code is ErrorCode.cluster_authorization_failed
    answer = ask(broker, CLIENT, DELETE_ACLS, 3, filters=[Struct(**filter_())])
    assert answer.filter_results[0].error_code is ErrorCode.cluster_authorization_failed
    answer = ask(broker, CLIENT, DESCRIBE_ACLS, 3, **filter_())
    assert answer.error_code is ErrorCode.cluster_authorization_failed
    assert described(broker) == before


def test_denials_are_in_a_log_of_their_own(broker: RunningBroker) -> None:
    produce(broker, CLIENT, "secret")
    line = (
        "Principal = User:ANONYMOUS is Denied operation = WRITE from host = 127.0.0.2 on resource "
        "= Topic:LITERAL:secret for request = PRODUCE"
    )
    assert [one for one in broker.log().splitlines() if line in one]


@pytest.mark.java
def test_kafka_acls_unmodified(broker: RunningBroker) -> None:
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
def test_kafkas_tools_read_our_records(broker: RunningBroker) -> None:
    log = next(broker.data_dir.glob("**/__cluster_metadata-0/00000000000000000000.log"))
    dumped = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(log)
    ).stdout
    assert dumped.count("ACCESS_CONTROL_ENTRY_RECORD") == 3
