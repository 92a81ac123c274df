"""Brokers that log in to each other with SCRAM, whose credentials are in the metadata log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from broker_tests.security.strangers import attempts
from broker_tests.security.three_brokers import running, start, three_brokers
from broker_tests.security.tls_support import client as kafka_client
from odradek_broker.metadata.image import EMPTY_IMAGE
from odradek_broker.metadata.records import UserScramCredentialRecord
from odradek_broker.metadata.scram import ScramMechanism as Mechanism
from odradek_broker.metadata.scram import make_credential
from odradek_broker.model.config_table import ConfigError
from odradek_broker.security.broker_login import Credentials, OwnUser
from odradek_broker.security.first_users import with_own_users
from odradek_protocol.client.errors import AuthenticationError, ClientError
from odradek_protocol.security.sasl_client import Login
from odradek_testkit.engines import RunningBroker, on_apache
from odradek_testkit.stranger import StrangerConnection
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="starts brokers of ours")

FIRST, SECOND = ("broker", "first-of-brokers"), ("broker-2", "second-of-brokers")
JAAS = "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config"
OTHER_JAAS = "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config"
MECHANISM = "sasl.mechanism.inter.broker.protocol"


def jaas(user: tuple[str, str]) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{user[0]}" password="{user[1]}";'


@pytest.fixture
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[RunningBroker]]:
    settings = {
        MECHANISM: "SCRAM-SHA-512",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
        JAAS: jaas(FIRST),
        "min.insync.replicas": "3",
    }
    nodes = three_brokers(tmp_path, "SASL_PLAINTEXT", settings)
    with running(request, nodes):
        yield nodes


def login(
    nodes: Sequence[RunningBroker], user: tuple[str, str], mechanism: str = "SCRAM-SHA-512"
) -> dict[str, str]:
    return {
        "bootstrap.servers": ",".join(node.bootstrap for node in nodes),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user[0],
        "sasl.password": user[1],
    }


def logs_in(node: RunningBroker, user: tuple[str, str], mechanism: str = "SCRAM-SHA-512") -> bool:
    properties = login([node], user, mechanism)
    try:
        with kafka_client(properties.pop("bootstrap.servers"), properties) as kafka:
            return bool(kafka.metadata().brokers)
    except (AuthenticationError, ClientError):
        return False


def write(
    nodes: Sequence[RunningBroker], user: tuple[str, str], mechanism: str = "SCRAM-SHA-512"
) -> None:
    """Acknowledged by all three brokers: replication works in every direction."""
    producer = Producer(login(nodes, user, mechanism) | {"acks": "all"})
    failed: list[object] = []
    for partition in range(3):
        producer.produce("t", b"x", partition=partition, on_delivery=lambda e, _: failed.append(e))
    assert producer.flush(60) == 0
    assert failed == [None, None, None]


def test_brokers_form_restart_and_change_their_user(brokers: list[RunningBroker]) -> None:
    """1. a new cluster forms and replicates, without a file of first users; 2. all brokers stop and
    start: they elect a leader before any of them has metadata; 3. a second user is created, the
    brokers restart one by one with it, the first one is deleted: the first password is refused,
    also after another restart of all; 4. no log has a password."""
    admin = AdminClient({**login(brokers, FIRST)})
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(60)
    write(brokers, FIRST)
    stop_all(brokers)
    start(brokers)
    write(brokers, FIRST)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    new = UserScramCredentialUpsertion(SECOND[0], info, SECOND[1].encode())
    admin.alter_user_scram_credentials([new])[SECOND[0]].result(60)
    for node in brokers:
        wait_until(lambda node=node: logs_in(node, SECOND))  # type: ignore[misc]
        assert node.stop() == 0
        node.settings[JAAS] = jaas(SECOND)
        node.start(60.0)
    write(brokers, SECOND)
    admin = AdminClient({**login(brokers, SECOND)})
    old = UserScramCredentialDeletion(FIRST[0], ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([old])[FIRST[0]].result(60)
    for again in (False, True):
        if again:
            stop_all(brokers)
            start(brokers)
        for node in brokers:
            wait_until(lambda node=node: not logs_in(node, FIRST))  # type: ignore[misc]
        write(brokers, SECOND)
    assert not any(user[1] in node.log() for node in brokers for user in (FIRST, SECOND))


def test_brokers_change_their_password_without_a_second_user(brokers: list[RunningBroker]) -> None:
    """A user has a password for each mechanism. 1. the brokers' user gets a new one for the other
    mechanism; 2. the brokers restart one by one with that mechanism and password; 3. the credential
    of the first mechanism is deleted: the old password is refused, and brokers stay connected."""
    new, mechanism = (FIRST[0], "a-new-password"), "SCRAM-SHA-256"
    admin = AdminClient({**login(brokers, FIRST)})
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(60)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(new[0], info, new[1].encode())
    admin.alter_user_scram_credentials([change])[new[0]].result(60)
    for node in brokers:
        wait_until(lambda node=node: logs_in(node, new, mechanism))  # type: ignore[misc]
        assert node.stop() == 0
        node.settings |= {MECHANISM: mechanism, OTHER_JAAS: jaas(new)}
        del node.settings[JAAS]
        node.start(60.0)
    write(brokers, new, mechanism)
    admin = AdminClient({**login(brokers, new, mechanism)})
    old = UserScramCredentialDeletion(FIRST[0], ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([old])[FIRST[0]].result(60)
    for node in brokers:
        wait_until(lambda node=node: not logs_in(node, FIRST))  # type: ignore[misc]
    write(brokers, new, mechanism)
    assert not any(user[1] in node.log() for node in brokers for user in (FIRST, new))


def stop_all(nodes: Sequence[RunningBroker]) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda node: node.stop(), nodes)) == [0, 0, 0]


def test_an_unknown_client_is_refused(brokers: list[RunningBroker]) -> None:
    """Without a login, and with a wrong password."""
    for node in brokers:
        for what, attempt in attempts().items():
            with StrangerConnection.plain(node.port) as raw:
                assert raw.call(*attempt) is None, what
        assert not logs_in(node, (FIRST[0], SECOND[1]))
        assert "not authenticated" in node.log()


def own_user(password: str) -> OwnUser:
    own = OwnUser.of(Login("SCRAM-SHA-256", "broker", password))
    assert own is not None
    return own


def test_the_own_user_counts_only_while_the_broker_starts() -> None:
    credentials = Credentials(lambda: EMPTY_IMAGE)
    own = credentials.own["BROKERS"] = own_user("secret")
    mechanism, other = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
    assert credentials.scram("BROKERS", mechanism, "broker") == own.credential
    assert credentials.scram("BROKERS", other, "broker") is None
    assert credentials.scram("BROKERS", mechanism, "mallory") is None
    assert credentials.scram("CLIENTS", mechanism, "broker") is None
    credentials.own.clear()
    assert credentials.scram("BROKERS", mechanism, "broker") is None


def in_file(password: str) -> UserScramCredentialRecord:
    made = make_credential(Mechanism.SCRAM_SHA_256, password, b"salt", 8192)
    keys = made.salt, made.stored_key, made.server_key, made.iterations
    return UserScramCredentialRecord("broker", Mechanism.SCRAM_SHA_256, *keys)


def test_the_file_of_first_users_must_agree_with_the_login() -> None:
    (added,) = with_own_users([], [own_user("secret")])
    assert own_user("secret").has_password_of(added)
    assert with_own_users([in_file("secret")], [own_user("secret")]) == [in_file("secret")]
    with pytest.raises(ConfigError, match="broker") as refused:
        with_own_users([in_file("other")], [own_user("secret")])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_only_a_login_with_scram_has_an_own_user(mechanism: str) -> None:
    token: Callable[[], str] = lambda: "t"  # noqa: E731
    assert OwnUser.of(Login(mechanism, "broker", "secret", token)) is None
    assert "secret" not in repr(own_user("secret"))
