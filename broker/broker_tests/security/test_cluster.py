"""Three brokers whose only listener is SASL_SSL: quorum, replication, transactions, forwarding."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker_tests.security.strangers import attempts, error_of, log_in
from broker_tests.security.three_brokers import running, three_brokers
from broker_tests.security.tls_support import JAAS_PLAIN, PASSWORD, Authority, tls_settings
from odradek_protocol.error_codes import ErrorCode
from odradek_testkit.clients import value_of
from odradek_testkit.engines import on_apache
from odradek_testkit.stranger import StrangerConnection
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="starts brokers of ours")


class Secured:
    """A cluster, its CA, and the properties of its clients."""

    def __init__(self, directory: Path, **more: str) -> None:
        self.authority = Authority.make(directory / "tls")
        self.key_store = self.authority.issue("server")
        settings = {
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS_PLAIN,
            "odradek.ssl.reload.interval.ms": "100",
            "connections.max.reauth.ms": "2000",
            **tls_settings(self.authority, self.key_store),
            **more,
        }
        self.nodes = three_brokers(directory, "SASL_SSL", settings)
        listeners = (node.settings["listeners"] for node in self.nodes)
        self.bootstrap = ",".join(listener.partition("://")[2] for listener in listeners)

    def client(self, **more: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.trusted()),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            **{name.replace("_", "."): value for name, value in more.items()},
        }


@pytest.fixture
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    yield from started(request, Secured(tmp_path))


def started(request: pytest.FixtureRequest, cluster: Secured) -> Iterator[Secured]:
    with running(request, cluster.nodes):
        yield cluster


def create_topic(secured: Secured, name: str) -> None:
    admin = AdminClient({**secured.client()})
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(30)


def test_a_transaction_is_replicated_and_read(secured: Secured) -> None:
    """Forwarding (CreateTopics), replication (acks=all of three), markers, offsets."""
    create_topic(secured, "orders")
    producer = Producer(secured.client(transactional_id="t-1", acks="all"))
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(300):
        producer.produce("orders", str(number).encode(), partition=number % 3)
    producer.commit_transaction(30)
    settings = secured.client(
        group_id="readers", auto_offset_reset="earliest", isolation_level="read_committed"
    )
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["orders"])
        seen: set[bytes] = set()

        def all_read() -> bool:
            for message in consumer.consume(100, 0.5):
                assert message.error() is None
                seen.add(value_of(message))
            return len(seen) == 300

        wait_until(all_read, deadline_s=60)
        consumer.commit(asynchronous=False)


def test_certificates_change_under_load_without_an_error(secured: Secured) -> None:
    """1. a producer with acks=all runs; 2. every broker gets a new certificate, twice; 3. new
    clients get the new one; 4. no delivery failed, no client reported an error."""
    create_topic(secured, "load")
    errors: list[object] = []
    delivered: list[object] = []
    stop = threading.Event()

    def load() -> None:
        producer = Producer(secured.client(acks="all") | {"error_cb": errors.append})
        while not stop.is_set():
            producer.produce("load", b"x", on_delivery=lambda error, _: delivered.append(error))
            producer.poll(0.01)
        assert producer.flush(30) == 0

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for rotation in (1, 2):
            fresh = secured.authority.issue(f"server-{rotation}")
            temporary = secured.key_store.with_suffix(".new")
            temporary.write_bytes(fresh.read_bytes())
            temporary.replace(secured.key_store)
            for node in secured.nodes:
                wait_until(
                    lambda node=node, rotation=rotation: (  # type: ignore[misc]
                        node.log().count("the new certificate or trust store is used") >= rotation
                    )
                )
            before = len(delivered)
            wait_until(lambda before=before: len(delivered) > before + 50)  # type: ignore[misc]
            assert AdminClient({**secured.client()}).list_topics(timeout=20).brokers
    finally:
        stop.set()
        thread.join()
    assert not errors
    assert delivered
    assert not any(delivered)


def test_an_unknown_client_is_refused_on_the_inter_broker_listener(secured: Secured) -> None:
    """Vote, Fetch, registration, heartbeat: none is answered without a login."""
    create_topic(secured, "orders")
    for node in secured.nodes:
        for what, attempt in attempts().items():
            with StrangerConnection.tls(node.port, secured.authority.trusted()) as raw:
                assert raw.call(*attempt) is None, what
            with StrangerConnection.plain(node.port) as raw:
                assert raw.call(*attempt) is None, what
        assert "not authenticated" in node.log()
    # The requests are valid: a client that logs in gets an answer, because there is no authorizer.
    with StrangerConnection.tls(secured.nodes[0].port, secured.authority.trusted()) as raw:
        log_in(raw, "alice", PASSWORD)
        answer = raw.call(*attempts()["fetch as a replica"])
        assert answer is not None
        assert error_of(answer) != ErrorCode.cluster_authorization_failed
