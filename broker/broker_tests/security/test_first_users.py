"""The first user of a cluster, which exists before any login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from broker_tests.security.three_brokers import running
from broker_tests.security.tls_support import client as kafka_client
from odradek_broker.metadata import scram
from odradek_broker.model.config_table import ConfigError
from odradek_broker.security.first_users import first_users
from odradek_protocol.client.errors import AuthenticationError, ClientError
from odradek_testkit.clients import value_of
from odradek_testkit.cluster import CLUSTER_ID
from odradek_testkit.engines import RunningBroker, on_apache
from odradek_testkit.ports import free_ports
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="starts brokers of ours")

PASSWORD = "first, of all"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="b" user_broker="b";'
)


@pytest.fixture
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[RunningBroker]]:
    """Brokers log in to each other with PLAIN on a listener of their own; clients with SCRAM."""
    users = tmp_path / "first-users"
    users.write_text(f'# the admin\n\nSCRAM-SHA-512=[name=admin,password="{PASSWORD}"]\n')
    ports = free_ports(6)
    voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(ports[:3], 1))
    nodes = [
        RunningBroker(
            {
                "node.id": str(node_id),
                "listeners": f"CLIENTS://127.0.0.1:{client},BROKERS://127.0.0.1:{inner}",
                "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT",
                "inter.broker.listener.name": "BROKERS",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.brokers.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.brokers.plain.sasl.jaas.config": JAAS,
                "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "controller.quorum.voters": voters,
                "odradek.cluster.id": CLUSTER_ID,
                "odradek.add.scram.file": str(users),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:broker;User:admin",
            },
            directory=tmp_path / f"broker-{node_id}",
        )
        for node_id, (inner, client) in enumerate(zip(ports[:3], ports[3:], strict=True), 1)
    ]
    with running(request, nodes):
        yield nodes


def login(node: RunningBroker, user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }


def test_the_first_login_is_that_of_the_admin(brokers: list[RunningBroker], tmp_path: Path) -> None:
    """1. admin can log in at every broker, other users cannot; 2. creates a topic and writes;
    3. changes the password; 4. the file is deleted and a broker restarts: the new password is valid
    there; 5. the file comes back with the first password: it is ignored; no log has a password."""
    for node in brokers:
        # A broker learns of the first records a moment after the controller wrote them.
        wait_until(lambda node=node: logs_in(node, PASSWORD))  # type: ignore[misc]
        assert not logs_in(node, "wrong")
    admin = AdminClient({**login(brokers[0], "admin", PASSWORD)})
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(30)
    producer = Producer(login(brokers[1], "admin", PASSWORD))
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
    consumer = Consumer(login(brokers[2], "admin", PASSWORD) | {"group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    read = consumer.consume(1, 30)
    assert [value_of(one) for one in read] == [b"x"]
    consumer.close()
    change = UserScramCredentialUpsertion(
        "admin", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"second"
    )
    admin.alter_user_scram_credentials([change])["admin"].result(30)
    users = tmp_path / "first-users"
    given = users.read_text()
    for action in (users.unlink, lambda: users.write_text(given)):
        action()
        assert brokers[0].stop() == 0
        brokers[0].start(60.0)
        wait_until(lambda: logs_in(brokers[0], "second"))
        assert not logs_in(brokers[0], PASSWORD)
    assert not any(PASSWORD in node.log() for node in brokers)


def logs_in(node: RunningBroker, password: str) -> bool:
    properties = login(node, "admin", password)
    try:
        with kafka_client(properties.pop("bootstrap.servers"), properties) as kafka:
            return bool(kafka.metadata().brokers)
    except (AuthenticationError, ClientError):
        return False


def test_a_new_broker_without_its_file_does_not_start(tmp_path: Path) -> None:
    node = RunningBroker(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "odradek.add.scram.file": str(tmp_path / "no")},
        directory=tmp_path / "broker",
    )
    with pytest.raises(Exception, match="cannot be read"):
        node.start(30.0)


def test_the_credential_is_that_of_the_password(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("SCRAM-SHA-256=[name=ci,iterations=8192,password=p=q]\n")
    (record,) = first_users(str(file), is_new=True)
    again = scram.make_credential(scram.ScramMechanism.SCRAM_SHA_256, "p=q", record.salt, 8192)
    assert (record.name, record.stored_key) == ("ci", again.stored_key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nobody\n",
        "secret",
        "SCRAM-SHA-1=[name=a,password=secret]",
        "SCRAM-SHA-512=name=a,password=secret",
        "SCRAM-SHA-512=[name=a]",
        "SCRAM-SHA-512=[name=,password=secret]",
        "SCRAM-SHA-512=[name=a,password=secret,role=b]",
        "SCRAM-SHA-512=[name=a,name=b,password=secret]",
        'SCRAM-SHA-512=[name=a,password="secret]',
        "SCRAM-SHA-512=[name=a,password=secret,iterations=1]",
        "SCRAM-SHA-512=[name=a,password=secret]\nSCRAM-SHA-512=[name=a,password=secret]",
    ],
)
def test_a_bad_file_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "users"
    file.write_text(text)
    with pytest.raises(ConfigError, match="users") as refused:
        first_users(str(file), is_new=True)
    assert "secret" not in str(refused.value)
