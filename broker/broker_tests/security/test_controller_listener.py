"""Three brokers whose quorum has a listener of its own: mutual TLS there, SCRAM over TLS elsewhere.

SASL_SSL    clients and replication
CONTROLLER  votes, the metadata log, registration, heartbeats, forwarded requests
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker_tests.conftest import servers_of_test
from broker_tests.security.strangers import attempts, error_of, log_in
from broker_tests.security.three_brokers import running, start
from broker_tests.security.tls_support import JAAS_PLAIN, PASSWORD, Authority, tls_settings
from odradek_broker.handlers.registry import build_apis
from odradek_broker.runtime.metrics import Metrics
from odradek_protocol.client import ApiKey, Struct
from odradek_protocol.error_codes import ErrorCode
from odradek_testkit.cluster import CLUSTER_ID
from odradek_testkit.engines import RunningBroker, on_apache
from odradek_testkit.ports import free_ports
from odradek_testkit.stranger import TIMEOUT_S, StrangerConnection
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="starts brokers of ours")

BROKER_JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="broker" password="{PASSWORD}-b";'
)
VERSIONS_REQUEST = Struct(client_software_name="raw", client_software_version="1")


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.authority = Authority.make(directory / "tls")
        self.key_store = self.authority.issue("server")
        ports = free_ports(6)
        self.controller_ports = ports[3:]
        voters = ",".join(f"{i}@127.0.0.1:{p}" for i, p in enumerate(self.controller_ports, 1))
        self.nodes = [
            RunningBroker(
                {
                    "node.id": str(node_id),
                    "listeners": f"SASL_SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{inner}",
                    "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SSL",
                    "security.inter.broker.protocol": "SASL_SSL",
                    "controller.listener.names": "CONTROLLER",
                    "listener.name.controller.ssl.client.auth": "required",
                    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
                    "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
                    "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": BROKER_JAAS,
                    "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS_PLAIN,
                    "controller.quorum.voters": voters,
                    "odradek.cluster.id": CLUSTER_ID,
                    "min.insync.replicas": "3",
                    **tls_settings(self.authority, self.key_store),
                },
                directory=directory / f"broker-{node_id}",
            )
            for node_id, (port, inner) in enumerate(
                zip(ports[:3], self.controller_ports, strict=True), 1
            )
        ]
        self.client = {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports[:3]),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.trusted()),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }

    def start(self) -> None:
        start(self.nodes)

    def controller(self, port: int, certificate: Path | None) -> StrangerConnection:
        context = ssl.create_default_context(cafile=str(self.authority.trusted()))
        if certificate is not None:
            context.load_cert_chain(certificate)
        connected = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        return StrangerConnection(context.wrap_socket(connected, server_hostname="localhost"))


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with running(request, made.nodes):
        yield made


def answer_of(raw: StrangerConnection, attempt: tuple[ApiKey, int, Struct]) -> Struct | None:
    try:
        return raw.call(*attempt)
    except ssl.SSLError:  # with TLS 1.3 a missing certificate is refused after the handshake
        return None


def write(cluster: Cluster) -> None:
    """Acknowledged by all three brokers: replication works in every direction."""
    producer = Producer({**cluster.client, "acks": "all"})
    failed: list[object] = []
    for number in range(3):
        producer.produce(
            "orders", b"x", partition=number, on_delivery=lambda error, _: failed.append(error)
        )
    assert producer.flush(60) == 0
    assert failed == [None, None, None]


def test_the_quorum_has_a_listener_of_its_own(cluster: Cluster) -> None:
    """1. the cluster forms, forwards and replicates; 2. so it does after a restart of all;
    3. voters use the controller listener, which metadata does not show to clients."""
    admin = AdminClient({**cluster.client})
    admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(60)
    for again in (False, True):
        if again:
            stop_all(cluster)
            cluster.start()
        write(cluster)
    shown = {broker.port for broker in admin.list_topics(timeout=30).brokers.values()}
    assert not shown & set(cluster.controller_ports)
    assert len(shown) == 3
    endpoints = quorum_endpoints(cluster)
    assert endpoints <= {("CONTROLLER", port) for port in cluster.controller_ports}
    assert endpoints


# The settings that give the quorum a listener of its own; without them it has that of the brokers.
QUORUM = (
    "controller.listener.names",
    "listener.name.controller.ssl.client.auth",
    "controller.quorum.voters",
    "listeners",
    "listener.security.protocol.map",
)


def test_a_cluster_that_exists_moves_its_quorum_while_it_is_stopped(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """1. a cluster whose quorum uses the listener between brokers; 2. all brokers stop, get the
    settings of a controller listener, and start; 3. topics and records are there, new ones are
    replicated, and voters are reached at the controller listener."""
    made = Cluster(tmp_path)
    request.node.stash[servers_of_test] = list(made.nodes)
    later = [{name: node.settings[name] for name in QUORUM} for node in made.nodes]
    addresses = [node.settings["listeners"].partition(",")[0] for node in made.nodes]
    voters = ",".join(f"{i}@{one.rpartition('/')[2]}" for i, one in enumerate(addresses, 1))
    for node, address in zip(made.nodes, addresses, strict=True):
        for name in QUORUM:
            del node.settings[name]
        node.settings |= {"listeners": address, "controller.quorum.voters": voters}
    made.start()
    try:
        admin = AdminClient({**made.client})
        admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(60)
        write(made)
        stop_all(made)
        for node, settings in zip(made.nodes, later, strict=True):
            node.settings |= settings
        made.start()
        write(made)
        expected = {("CONTROLLER", port) for port in made.controller_ports}
        wait_until(lambda: quorum_endpoints(made) == expected)  # each voter updates its own record
    finally:
        stop_all(made)


def stop_all(cluster: Cluster) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda node: node.stop(), cluster.nodes)) == [0, 0, 0]


def quorum_endpoints(cluster: Cluster) -> set[tuple[str, int]]:
    """Where DescribeQuorum says that voters are reached."""
    with StrangerConnection.tls(cluster.nodes[0].port, cluster.authority.trusted()) as raw:
        log_in(raw, "alice", PASSWORD)
        topic = Struct(topic_name="__cluster_metadata", partitions=[Struct(partition_index=0)])
        quorum = raw.call(ApiKey.DESCRIBE_QUORUM, 2, Struct(topics=[topic]))
    assert quorum is not None
    return {(one.name, one.port) for node in quorum.nodes for one in node.listeners}


def test_an_unknown_client_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """On the controller listener: plain, without a certificate, with that of another CA. On the
    other: without a login; a client that logs in does not reach the quorum there either."""
    other = Authority.make(tmp_path / "other").issue("mallory")
    trusted = cluster.authority.trusted()
    for node, port in zip(cluster.nodes, cluster.controller_ports, strict=True):
        for what, attempt in attempts().items():
            with StrangerConnection.plain(port) as raw:
                assert raw.call(*attempt) is None, what
            for certificate in (None, other):
                with cluster.controller(port, certificate) as raw:
                    assert answer_of(raw, attempt) is None, what
            with StrangerConnection.tls(node.port, trusted) as raw:
                assert raw.call(*attempt) is None, what
            with StrangerConnection.tls(node.port, trusted) as raw:
                log_in(raw, "alice", PASSWORD)
                answer = raw.call(*attempt)
                if what == "fetch the metadata log":
                    assert answer is not None
                    assert error_of(answer) == ErrorCode.cluster_authorization_failed
                elif what != "fetch as a replica":  # without ACLs, who logged in may
                    assert answer is None, what
        assert "unknown api key: 52" in node.log()


def test_it_serves_the_apis_of_a_controller_only(cluster: Cluster) -> None:
    """With a certificate: ApiVersions has what Kafka's controllers have; other APIs close the
    connection; Fetch has the metadata log only; DescribeCluster shows the voters."""
    port = cluster.controller_ports[0]
    with cluster.controller(port, cluster.key_store) as raw:
        answer = raw.call(ApiKey.API_VERSIONS, 3, VERSIONS_REQUEST)
        assert answer is not None
        keys = {one.api_key for one in answer.api_keys}
        assert keys == set(build_apis(Metrics()).for_controllers)
        fetched = raw.call(*attempts()["fetch as a replica"])
        assert fetched is not None
        assert fetched.error_code == ErrorCode.invalid_request
        for endpoint_type, code in ((2, 0), (1, ErrorCode.mismatched_endpoint_type)):
            request = Struct(endpoint_type=endpoint_type)
            described = raw.call(ApiKey.DESCRIBE_CLUSTER, 1, request)
            assert described is not None
            assert described.error_code == code
            assert {one.port for one in described.brokers} <= set(cluster.controller_ports)
    for api in (ApiKey.METADATA, ApiKey.LIST_GROUPS):
        request = Struct(topics=[]) if api == ApiKey.METADATA else Struct()
        with cluster.controller(port, cluster.key_store) as raw:
            assert raw.call(api, 4, request) is None, api.name
