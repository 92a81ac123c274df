"""The CA and the password of a user change while librdkafka writes and reads: no client notices."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from broker_tests.security.test_cluster import Secured, create_topic, started
from broker_tests.security.tls_support import Authority, client, trusting
from odradek_protocol.client.errors import AuthenticationError, ClientError
from odradek_testkit.clients import value_of
from odradek_testkit.engines import RunningBroker, on_apache
from odradek_testkit.stranger import StrangerConnection
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="starts brokers of ours")

RELOADED = "the new certificate or trust store is used"
SESSION_MS = 8_000
PAUSE_S = 0.02  # between two records: the rotation is under test, not the rate
STEP_RECORDS = 20  # are written and read between two steps of a rotation


class Load:
    """A producer with acks=all and a consumer in a group, until `stop`."""

    def __init__(self, settings: dict[str, str], topic: str, name: str) -> None:
        self.errors: list[object] = []
        self.sent = 0
        self.delivered = 0
        self.read: set[bytes] = set()
        self._topic = topic
        self._name = name
        self._stop = threading.Event()
        self._all_sent = threading.Event()
        self._producer = Producer(settings | {"acks": "all", "error_cb": self.errors.append})
        self._consumer = Consumer(
            settings
            | {"group.id": name, "auto.offset.reset": "earliest", "error_cb": self.errors.append}
        )
        self._threads = [threading.Thread(target=run) for run in (self._write, self._take)]

    def _write(self) -> None:
        def note(error: KafkaError | None, _: object) -> None:
            if error:
                self.errors.append(error)
            self.delivered += 1

        while not self._stop.is_set():
            self._producer.produce(self._topic, self._value(self.sent), on_delivery=note)
            self.sent += 1
            self._producer.poll(0)
            self._stop.wait(PAUSE_S)
        if self._producer.flush(30):
            self.errors.append("records were left in the producer")
        self._all_sent.set()

    def _take(self) -> None:
        self._consumer.subscribe([self._topic])
        while not (self._all_sent.is_set() and (self.errors or len(self.read) >= self.delivered)):
            for message in self._consumer.consume(100, 0.2):
                if message.error():
                    self.errors.append(message.error())
                elif value_of(message).startswith(self._name.encode()):
                    self.read.add(value_of(message))
        self._consumer.close()

    def _value(self, number: int) -> bytes:
        return f"{self._name} {number}".encode()

    def goes_on(self) -> None:
        delivered, read = self.delivered, len(self.read)
        wait_until(
            lambda: (
                self.delivered > delivered + STEP_RECORDS and len(self.read) > read + STEP_RECORDS
            ),
            deadline_s=60,
        )

    @contextmanager
    def running(self) -> Iterator[Load]:
        for thread in self._threads:
            thread.start()
        try:
            self.goes_on()
            yield self
        finally:
            self.stop()
        assert not self.errors
        assert self.read == {self._value(number) for number in range(self.sent)}

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def replace(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(content)
    temporary.replace(path)


@pytest.fixture
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    """Sessions of brokers and of SCRAM-SHA-512 end soon, those of SCRAM-SHA-256 do not end.

    A client that authenticates again too late is disconnected. So on a slow machine the load must
    have no sessions where they are not under test.
    """
    reauth = "connections.max.reauth.ms"
    yield from started(
        request,
        Secured(
            tmp_path,
            **{
                reauth: str(SESSION_MS),
                f"listener.name.sasl_ssl.scram-sha-256.{reauth}": "0",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            },
        ),
    )


def set_password(secured: Secured, password: str) -> None:
    admin = AdminClient({**secured.client()})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(
            "bob", ScramCredentialInfo(mechanism, 4096), password.encode()
        )
        admin.alter_user_scram_credentials([change])["bob"].result(30)


def bob(secured: Secured, password: str, *, sessions: bool = False) -> dict[str, str]:
    mechanism = "SCRAM-SHA-512" if sessions else "SCRAM-SHA-256"
    login = {"sasl.mechanism": mechanism, "sasl.username": "bob"}
    return secured.client() | login | {"sasl.password": password}


def lets_in(
    secured: Secured, node: RunningBroker, password: str, *, sessions: bool = False
) -> bool:
    settings = bob(secured, password, sessions=sessions)
    properties = trusting(secured.authority, "SASL_SSL") | {
        name: value for name, value in settings.items() if name.startswith("sasl.")
    }
    try:
        with client(node.bootstrap, properties) as kafka:
            return bool(kafka.metadata().brokers)
    except (AuthenticationError, ClientError):
        return False


def bob_can_log_in(secured: Secured, password: str) -> None:
    for node in secured.nodes:
        for sessions in (False, True):
            wait_until(partial(lets_in, secured, node, password, sessions=sessions))


def test_the_ca_changes_under_load_without_an_error(secured: Secured, tmp_path: Path) -> None:
    """1. clients and brokers trust the old and the new CA; 2. every broker gets a certificate of
    the new CA; 3. the old CA is removed from all trust stores; after each step brokers reconnect
    to each other and a new client logs in. A client that trusts only the old CA is refused then."""
    create_topic(secured, "load")
    new = Authority.make(tmp_path / "new-ca")
    trusted = secured.authority.trusted()
    old_pem, new_pem = trusted.read_bytes(), new.trusted().read_bytes()
    only_old = tmp_path / "old.pem"
    only_old.write_bytes(old_pem)
    both = tmp_path / "both.pem"
    both.write_bytes(old_pem + new_pem)
    set_password(secured, "secret")
    bob_can_log_in(secured, "secret")
    settings = bob(secured, "secret") | {"ssl.ca.location": str(both)}
    reloads = 0

    def reloaded() -> None:
        nonlocal reloads
        reloads += 1
        for node in secured.nodes:
            wait_until(lambda node=node: node.log().count(RELOADED) >= reloads)  # type: ignore[misc]

    with Load(settings, "load", "g").running() as load:
        replace(trusted, old_pem + new_pem)
        reloaded()
        load.goes_on()
        replace(secured.key_store, new.issue("server").read_bytes())
        reloaded()
        load.goes_on()
        replace(trusted, new_pem)
        reloaded()
        load.goes_on()
        only_new = secured.client() | {"ssl.ca.location": str(new.trusted())}
        assert AdminClient({**only_new}).list_topics(timeout=20).brokers
        assert not load.errors
        # A broker that restarts connects anew: brokers trust each other by the new CA alone.
        for node in secured.nodes[:1]:
            assert node.stop() == 0
            node.start(60.0)
        load.goes_on()
        # librdkafka reports the end of a connection, which the restart caused, not the rotation.
        expected = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
        load.errors[:] = [
            error
            for error in load.errors
            if not (isinstance(error, KafkaError) and error.code() in expected)
        ]
    with pytest.raises(OSError, match="certificate verify failed"):
        StrangerConnection.tls(secured.nodes[0].port, only_old)


def test_a_password_changes_under_load_without_an_error(secured: Secured) -> None:
    """1. bob writes and reads; 2. the password is changed: every broker refuses the old
    one, but open connections stay open; 3. clients with the new password start, those with
    the old one stop; 4. the new ones go on for longer than a session, at whose end they
    authenticate again."""
    create_topic(secured, "load")
    set_password(secured, "old")
    bob_can_log_in(secured, "old")
    with Load(bob(secured, "old"), "load", "before").running() as before:
        set_password(secured, "new")
        bob_can_log_in(secured, "new")
        for node in secured.nodes:
            for sessions in (False, True):
                assert not lets_in(secured, node, "old", sessions=sessions)
        with Load(bob(secured, "new", sessions=True), "load", "after").running() as after:
            before.goes_on()
            before.stop()
            until = time.monotonic() + 1.5 * SESSION_MS / 1000
            while time.monotonic() < until:
                after.goes_on()
