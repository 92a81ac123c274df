"""A listener of type passthrough behind a proxy that chooses the broker by the name in TLS (SNI).

The proxy is a TCP proxy as gateways are: it reads the first message of the client, looks up the
name and forwards bytes. It has no key, so it sees nothing of what it forwards. Names such as
kafka-0.example.com lead to the proxy: in Python by a patched resolver, in Java by a file of hosts.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from odradek_cli.properties import parse_properties
from odradek_operator.kafka.links import addresses
from odradek_operator.local.users import LocalUserSecrets
from odradek_protocol.client import ClientError, ClientSettings, KafkaClient
from odradek_protocol.client.security import SecuritySettings
from odradek_testkit.engines import java_command
from operator_tests.local.local import KEY, Local

SCRAM = {"tls": True, "authentication": {"type": "scram-sha-512"}}
DOMAIN, BROKERS, TOPIC = "example.com", 3, "orders"
BOOTSTRAP = f"kafka-bootstrap.{DOMAIN}"


class Proxy:
    """Forwards connections by their SNI; `routes`: name → port of 127.0.0.1."""

    def __init__(self) -> None:
        self.routes: dict[str, int] = {}
        self.seen: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            name, hello = sni_of(client)
            self.seen.append(name)
            with socket.create_connection(("127.0.0.1", self.routes[name])) as broker:
                broker.sendall(hello)
                back = threading.Thread(target=forward, args=(broker, client), daemon=True)
                back.start()
                forward(client, broker)
                back.join()


def sni_of(client: socket.socket) -> tuple[str, bytes]:
    """The name that the client asks for, and the bytes that it has sent so far."""
    found: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _, name, __: found.append(name)
    incoming, hello = ssl.MemoryBIO(), b""
    reader = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    while not found:
        part = client.recv(65536)
        if not part:
            raise OSError("closed before it named a broker")
        hello += part
        incoming.write(part)
        with suppress(ssl.SSLError):  # incomplete; or complete, and this proxy has no certificate
            reader.do_handshake()
    return found[0], hello


def forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    resolve = socket.getaddrinfo

    def patched(host: Any, *more: Any, **options: Any) -> Any:
        local = isinstance(host, str) and host.endswith(DOMAIN)
        return resolve("127.0.0.1" if local else host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", patched)
    made = Proxy()
    yield made
    made.close()


def start(local: Local, proxy: Proxy) -> None:
    """A topic with a leader on every broker, a user, and the proxy's routes."""
    local.topic(TOPIC, partitions=BROKERS, replicationFactor=BROKERS)
    rights = ({"type": "topic", "name": TOPIC}, {"type": "group", "name": "*"})
    operations = (["read", "write"], ["read"])
    acls = [{"resource": r, "operations": o} for r, o in zip(rights, operations, strict=True)]
    local.user("partner", listener="web", acls=acls)
    local.settle(300)
    for broker, settings in local.runtime.clusters[KEY].platform.running().items():
        assert addresses(settings)["WEB"] == f"kafka-{broker}.{DOMAIN}:{proxy.port}"
        bound = dict(one.split("://") for one in settings["listeners"].split(","))
        proxy.routes[f"kafka-{broker}.{DOMAIN}"] = int(bound["WEB"].rpartition(":")[2])
    proxy.routes[BOOTSTRAP] = proxy.routes[f"kafka-0.{DOMAIN}"]


def spec(proxy: Proxy) -> dict[str, Any]:
    advertised = [
        {"id": n, "host": f"kafka-{n}.{DOMAIN}", "port": proxy.port} for n in range(BROKERS)
    ]
    web = {"name": "web", "port": 9096, "type": "passthrough", **SCRAM, "advertised": advertised,
           "hostPattern": f"kafka-{{id}}.{DOMAIN}"}  # fmt: skip
    inside = {"name": "clients", "port": 9092, **SCRAM}
    return {"brokers": BROKERS, "security": "strict", "listeners": [inside, web]}


def login(local: Local, proxy: Proxy) -> dict[str, Any]:
    found = LocalUserSecrets(local.state).find("default/partner")
    assert found is not None
    data = {key: value.decode() for key, value in found.data.items()}
    assert set(data["bootstrap.servers"].split(",")) == {
        f"kafka-{n}.{DOMAIN}:{proxy.port}" for n in range(BROKERS)
    }
    return {
        "bootstrap_servers": f"{BOOTSTRAP}:{proxy.port}",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(local.state / "secrets" / "default" / "partner" / "ca.crt"),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": data["username"],
        "sasl_plain_password": data["password"],
    }


def test_clients_reach_each_broker_through_the_proxy(tmp_path: Path, proxy: Proxy) -> None:
    """1. A client that knows one name writes to all brokers and reads from them. 2. A proxy that
    forwards to the wrong broker is noticed: its certificate has another name."""
    with Local(tmp_path, **spec(proxy)) as local:
        start(local, proxy)
        settings = login(local, proxy)
        producer = KafkaProducer(**settings, acks="all")
        for n in range(30):
            producer.send(TOPIC, b"%d" % n, partition=n % BROKERS).get(60)
        producer.close()
        consumer = KafkaConsumer(**settings, group_id=None, consumer_timeout_ms=60_000)
        consumer.assign([TopicPartition(TOPIC, p) for p in range(BROKERS)])
        consumer.seek_to_beginning()
        assert sorted(int(next(consumer).value) for _ in range(30)) == list(range(30))
        consumer.close()
        assert set(proxy.seen) == proxy.routes.keys()

        wrong = f"kafka-1.{DOMAIN}"
        proxy.routes[wrong] = proxy.routes[f"kafka-2.{DOMAIN}"]
        properties = local.state / "secrets" / "default" / "partner" / "client.properties"
        security = SecuritySettings.from_properties(parse_properties(properties.read_text()))
        client = KafkaClient(f"{wrong}:{proxy.port}", ClientSettings(security=security))
        with pytest.raises(ClientError, match=wrong):
            client.metadata()


@pytest.mark.java
def test_java_with_the_properties_of_the_secret(tmp_path: Path, proxy: Proxy) -> None:
    """Kafka's console tools, with client.properties as it is in the Secret."""
    hosts = tmp_path / "hosts"
    names = [BOOTSTRAP, *(f"kafka-{n}.{DOMAIN}" for n in range(BROKERS))]
    hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in names))
    with Local(tmp_path, **spec(proxy)) as local:
        start(local, proxy)
        properties = str(local.state / "secrets" / "default" / "partner" / "client.properties")
        server = ["--bootstrap-server", f"{BOOTSTRAP}:{proxy.port}", "--topic", TOPIC]

        def tool(main_class: str, *more: str, stdin: str = "") -> str:
            command = java_command(
                main_class, *server, *more, jvm=[f"-Djdk.net.hosts.file={hosts}"]
            )
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        lines = "".join(f"{n}\n" for n in range(30))
        tool("org.apache.kafka.tools.ConsoleProducer", "--command-config", properties,
             "--producer-property", "partitioner.class="
             "org.apache.kafka.clients.producer.RoundRobinPartitioner", stdin=lines)  # fmt: skip
        read = tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--command-config",
                    properties, "--from-beginning", "--max-messages", "30")  # fmt: skip
        assert sorted(map(int, read.split())) == list(range(30))
        assert set(proxy.seen) == proxy.routes.keys()
