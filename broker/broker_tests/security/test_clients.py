"""Real clients, unmodified, for each protocol and mechanism: they write and read back 20 records.

One broker has a listener for each protocol. Tokens of OAUTHBEARER are unsigned here, because every
client can create those; test_sasl.py and test_attacks.py have signed ones.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from broker_tests.conftest import StartBroker
from broker_tests.security.tls_support import (
    JAAS_PLAIN,
    PASSWORD,
    Authority,
    client,
    tls_settings,
    trusting,
)
from odradek_broker.metadata.scram import ScramMechanism, salted_password
from odradek_protocol.client import ApiKey, Controller, Struct
from odradek_protocol.security.sasl_client import unsecured_token
from odradek_testkit.clients import create_topic, value_of
from odradek_testkit.connecting import (
    for_java,
    for_kcat,
    for_librdkafka,
    for_python,
    write_properties,
)
from odradek_testkit.engines import kafka_tool, on_apache
from odradek_testkit.ports import free_ports

pytestmark = pytest.mark.skipif(on_apache(), reason="starts our broker with its settings")

USER = "alice"
VALUES = [f"value {number}" for number in range(20)]
PROTOCOLS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
TOKENS = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", TOKENS)
WAYS = [(one, how) for one in PROTOCOLS for how in (MECHANISMS if "SASL" in one else ("",))]
KAFKA_TOOLS = "org.apache.kafka.tools"
JAVA_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    TOKENS: "oauthbearer.OAuthBearerLoginModule",
}


@dataclass(frozen=True)
class Way:
    """How a client connects: the address of a listener, and the client's settings."""

    bootstrap: str
    protocol: str
    mechanism: str
    directory: Path
    authority: Authority = field(repr=False)

    @property
    def client_config(self) -> Path:
        """Without a login for OAUTHBEARER, where each kind of client has its own."""
        own = {"sasl.mechanism": self.mechanism} if self.mechanism else {}
        if self.mechanism not in ("", TOKENS):
            own |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return self._written("client", own)

    @property
    def java_config(self) -> Path:
        own = {}
        if self.mechanism:
            login = f'username="{USER}" password="{PASSWORD}"'
            if self.mechanism == TOKENS:
                login = f'unsecuredLoginStringClaim_sub="{USER}"'
            module = f"org.apache.kafka.common.security.{JAVA_MODULES[self.mechanism]}"
            own = {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f"{module} required {login};",
            }
        return self._written("java", own)

    def _written(self, name: str, own: dict[str, str]) -> Path:
        path = self.directory / f"{name}-{self.protocol}-{self.mechanism}.properties"
        tls = trusting(self.authority) if "SSL" in self.protocol else {}
        write_properties(path, {**tls, "security.protocol": self.protocol, **own})
        return path


def token() -> tuple[str, float]:
    now = int(time.time())
    return unsecured_token(USER, now), now + 3600.0


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return token()[0]


class AsyncTokens(AsyncTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return token()[0]


def librdkafka(way: Way, topic: str) -> list[str]:
    common = for_librdkafka(way)
    if way.mechanism == TOKENS:
        common["oauth_cb"] = lambda _: token()
    producer = Producer(common)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    consumer = Consumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[str] = []
    while len(found) < len(VALUES):
        found += [value_of(message).decode() for message in consumer.consume(len(VALUES), 1)]
    consumer.close()
    return found


def kafka_python(way: Way, topic: str) -> list[str]:
    common = for_python(way)
    if way.mechanism == TOKENS:
        common["sasl_oauth_token_provider"] = Tokens()
    producer = KafkaProducer(**common)
    sent = [producer.send(topic, value.encode()) for value in VALUES]
    for one in sent:
        one.get(20)
    producer.close()
    # It hung once, on a busy machine, without a log line: its state is shown after the timeout.
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **common
    )
    found: list[str] = []
    try:
        for record in consumer:
            found.append(record.value.decode())
            if len(found) == len(VALUES):
                break
        else:
            state = {one: consumer._subscription.assignment[one] for one in consumer.assignment()}
            raise AssertionError(f"{way}: {found}, partitions {state}, {consumer.metrics()}")
    finally:
        consumer.close()
    return found


def aiokafka(way: Way, topic: str) -> list[str]:
    async def run() -> list[str]:
        common = for_python(way)
        if way.mechanism == TOKENS:
            common["sasl_oauth_token_provider"] = AsyncTokens()
        producer = AIOKafkaProducer(**common)
        await producer.start()
        for value in VALUES:
            await producer.send_and_wait(topic, value.encode())
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **common)
        await consumer.start()
        found = [(await consumer.getone()).value.decode() for _ in VALUES]
        await consumer.stop()
        return found

    return asyncio.run(run())


def kcat(way: Way, topic: str) -> list[str]:
    flags = for_kcat(way)
    if way.mechanism == TOKENS:
        flags += ["-X", "enable.sasl.oauthbearer.unsecure.jwt=true"]
        flags += ["-X", f"sasl.oauthbearer.config=principal={USER}"]
    command = ["kcat", *flags, "-t", topic]
    given = "\n".join(VALUES)
    subprocess.run([*command, "-P"], input=given, text=True, check=True, timeout=60)
    done = subprocess.run(
        [*command, "-C", "-e", "-q"], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def java(way: Way, topic: str) -> list[str]:
    """The console scripts, which are Java's producer and consumer."""
    flags = [*for_java(way)[:2], "--command-config", str(way.java_config), "--topic", topic]
    lines = "".join(f"{value}\n" for value in VALUES)
    kafka_tool(f"{KAFKA_TOOLS}.ConsoleProducer", *flags, stdin=lines)
    count = ("--from-beginning", "--max-messages", str(len(VALUES)), "--timeout-ms", "60000")
    done = kafka_tool(f"{KAFKA_TOOLS}.consumer.ConsoleConsumer", *flags, *count, timeout_s=120)
    return done.stdout.splitlines()


CLIENTS: dict[str, Callable[[Way, str], list[str]]] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kcat": kcat,
    "java": java,
}


def settings(authority: Authority) -> tuple[dict[str, str], dict[str, str]]:
    """Settings of a broker with a listener for each protocol, and the address of each."""
    ports = zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True)
    addresses = {protocol: f"127.0.0.1:{port}" for protocol, port in ports}
    jaas = {
        f"listener.name.{one.lower()}.plain.sasl.jaas.config": JAAS_PLAIN
        for one in PROTOCOLS
        if "SASL" in one
    }
    return {
        "listeners": ",".join(f"{one}://{address}" for one, address in addresses.items()),
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "odradek.sasl.oauthbearer.unsecured.enable": "true",
        **jaas,
        **tls_settings(authority, authority.issue("server")),
    }, addresses


def add_user(way: Way) -> None:
    """Adds the user to SCRAM; PLAIN has it in the settings."""
    properties = trusting(way.authority, "SASL_SSL") | {
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    salt = b"0123456789abcdef"
    with client(way.bootstrap, properties) as kafka:
        for mechanism in ScramMechanism:
            credential = Struct(
                name=USER,
                mechanism=int(mechanism),
                iterations=4096,
                salt=salt,
                salted_password=salted_password(mechanism, PASSWORD, salt, 4096),
            )
            answer = kafka.call(
                Controller(),
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
                Struct(deletions=[], upsertions=[credential]),
            )
            assert [one.error_code for one in answer.results] == [0]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.java, pytest.mark.long] if name == "java" else [])
        for name in CLIENTS
    ],
)
def test_each_way_in(start_broker: StartBroker, tmp_path: Path, name: str) -> None:
    """Without encryption, with TLS; without a login and with every mechanism."""
    authority = Authority.make(tmp_path / "tls")
    given, addresses = settings(authority)
    broker = start_broker(given)
    ways = [Way(addresses[one], one, how, tmp_path, authority) for one, how in WAYS]
    admin = next(way for way in ways if (way.protocol, way.mechanism) == ("SASL_SSL", "PLAIN"))
    add_user(admin)
    for way in ways:
        topic = f"{way.protocol}-{way.mechanism}"
        create_topic(admin, topic)
        assert sorted(CLIENTS[name](way, topic)) == sorted(VALUES), way
    assert PASSWORD not in broker.log()
