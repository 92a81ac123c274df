"""ACLs in a cluster of three brokers, with users: which broker authorizes a forwarded request?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from broker_tests.security.strangers import attempts, error_of, log_in
from broker_tests.security.three_brokers import running, three_brokers
from odradek_protocol.client import ApiKey, Struct
from odradek_protocol.error_codes import ErrorCode
from odradek_testkit.engines import RunningBroker, on_apache
from odradek_testkit.stranger import StrangerConnection
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="starts brokers of ours")

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="b" user_broker="b" user_admin="a" user_alice="x";'
)
PASSWORDS = {"admin": "a", "alice": "x"}


@pytest.fixture
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[RunningBroker]]:
    settings = {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:admin",
    }
    nodes = three_brokers(tmp_path, "SASL_PLAINTEXT", settings)
    with running(request, nodes):
        yield nodes


def client(node: RunningBroker, user: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


def create_topic(node: RunningBroker, user: str, name: str) -> int:
    """The error code; 0 if the topic was created."""
    admin = AdminClient({**client(node, user)})  # its end would cancel the request
    try:
        admin.create_topics([NewTopic(name, 1, 3)])[name].result(30)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def may_create(node: RunningBroker, user: str, name: str) -> bool:
    return create_topic(node, user, name) == 0


def test_a_forwarded_request_is_authorised_as_its_client(brokers: list[RunningBroker]) -> None:
    """1. brokers form a cluster as super users; 2. alice may not create a topic through any
    broker, although the brokers that forward her request may; 3. with an ACL for it she may;
    4. she may write to her topics, on every leader, and to no other."""
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    for number, node in enumerate(brokers):
        assert create_topic(node, "admin", f"admin-{number}") == 0
        assert create_topic(node, "alice", f"alice-{number}") == denied
    admin = AdminClient({**client(brokers[0], "admin")})
    for operation in (AclOperation.CREATE, AclOperation.WRITE):
        binding = AclBinding(
            ResourceType.TOPIC,
            "alice-",
            ResourcePatternType.PREFIXED,
            "User:alice",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([binding])[binding].result(30)
    for number, node in enumerate(brokers):
        name = f"alice-{number}"
        # A broker learns of the ACL a moment after the controller has answered.
        wait_until(partial(may_create, node, "alice", name))
    delivered: list[tuple[str, int]] = []

    def note(name: str, error: KafkaError | None, _: Message) -> None:
        delivered.append((name, error.code() if error else 0))

    producer = Producer(client(brokers[0], "alice"))
    for number in range(3):
        for name in (f"alice-{number}", f"admin-{number}"):
            producer.produce(
                name,
                b"x",
                on_delivery=partial(note, name),
            )
    assert producer.flush(30) == 0
    assert sorted(delivered) == [
        *((f"admin-{n}", denied) for n in range(3)),
        *((f"alice-{n}", 0) for n in range(3)),
    ]


def test_a_user_without_rights_can_not_act_as_a_broker(brokers: list[RunningBroker]) -> None:
    """1. alice logs in at every broker and tries to vote, to fetch as a replica, to register, to
    fence: refused for want of CLUSTER_ACTION; 2. none of it was carried out; 3. the same
    requests of a broker's own user are accepted, so they were valid."""
    assert create_topic(brokers[0], "admin", "orders") == 0
    for node in brokers:
        for what, attempt in attempts().items():
            with StrangerConnection.plain(node.port) as raw:
                log_in(raw, "alice", PASSWORDS["alice"])
                answer = raw.call(*attempt)
                assert answer is not None, what
                denied = ErrorCode.cluster_authorization_failed
                if what == "fetch as a replica":
                    denied = ErrorCode.topic_authorization_failed
                assert error_of(answer) == denied, what
    with StrangerConnection.plain(brokers[0].port) as raw:
        log_in(raw, "admin", PASSWORDS["admin"])
        quorum = raw.call(
            ApiKey.DESCRIBE_QUORUM,
            0,
            Struct(topics=[Struct(topic_name="__cluster_metadata", partitions=[Struct()])]),
        )
        assert quorum is not None
        assert quorum.topics[0].partitions[0].leader_epoch < 1000, "no vote counted"
        cluster = raw.call(ApiKey.DESCRIBE_CLUSTER, 0, Struct())
        assert cluster is not None
        assert {one.broker_id for one in cluster.brokers} == {1, 2, 3}, "none came, none is fenced"
    for what in ("vote", "fetch the metadata log", "fetch as a replica", "register"):
        with StrangerConnection.plain(brokers[0].port) as raw:
            log_in(raw, "broker", "b")
            answer = raw.call(*attempts()[what])
            assert answer is not None, what
            assert error_of(answer) not in (
                ErrorCode.cluster_authorization_failed,
                ErrorCode.topic_authorization_failed,
            ), what


def test_a_refused_look_at_quotas_has_no_entries_as_in_kafka(brokers: list[RunningBroker]) -> None:
    with StrangerConnection.plain(brokers[0].port) as raw:
        log_in(raw, "alice", PASSWORDS["alice"])
        asked = Struct(components=[], strict=False)
        answer = raw.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, asked)
        assert answer is not None
        assert answer.error_code == ErrorCode.cluster_authorization_failed
        assert (answer.entries, answer.error_message) == (None, None)
