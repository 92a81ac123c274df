"""A strict cluster from a manifest on this machine: TLS, SCRAM, ACLs; certificates under load."""

from __future__ import annotations

import socket
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek_operator.kafka.routes import internal_address
from odradek_operator.security.pki import (
    Certificate,
    Subject,
    Usage,
    days,
    from_der,
    issue,
    new_ca,
)
from odradek_protocol.client import ClientError, ClientSettings, KafkaClient
from odradek_testkit.bundles import read_bundle
from odradek_testkit.engines import kafka_jars
from odradek_testkit.load import Load
from operator_tests.local.local import KEY, Local
from operator_tests.local.secured import (
    add_user,
    librdkafka,
    new_connection,
    trust_file,
)
from operator_tests.local.test_under_load import TOPIC, costs, judge

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ENGINES = [
    "embedded",
    pytest.param("apache", marks=pytest.mark.java),
]


@pytest.fixture(params=ENGINES)
def local(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Local]:
    """Three brokers, strict, with a topic and a user for it."""
    if request.param == "apache":
        monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    spec = {"security": "strict", "certificates": {"caOverlapHours": 0}}
    with Local(tmp_path, brokers=3, engine=request.param, **spec) as cluster:
        cluster.topic("orders", **TOPIC)
        cluster.settle(300)
        add_user(cluster, "orders")
        yield cluster


def served(address: str) -> Certificate:
    """The certificate that a client is shown."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), 5) as plain,
        context.wrap_socket(plain) as connection,
    ):
        der = connection.getpeercert(binary_form=True)
        assert der is not None
        return from_der(der)


def all_served(local: Local) -> list[Certificate]:
    return [served(address) for address in local.bootstrap.split(",")]


def test_only_users_with_rights_get_in(local: Local) -> None:
    """Without TLS, without a password, without trust: refused. Keys are readable by us only."""
    status = local.runtime.report.clusters[KEY].status
    assert [(one.name, one.protocol, one.authentication) for one in status.listeners] == [
        ("clients", "SASL_SSL", "scram-sha-512")
    ]
    assert {c.type for c in status.conditions}.isdisjoint({"Deprecated"})
    bundle = trust_file(local).read_bytes()
    new_connection(local, bundle)
    with pytest.raises(ClientError):
        KafkaClient(local.bootstrap, ClientSettings(deadline_s=3)).metadata()
    with pytest.raises(ClientError):
        new_connection(local, bundle=(local.state / _clients_ca()).read_bytes())
    with Load(local, "orders", partitions=6, per_second=100, security=librdkafka(local)) as load:
        load.wait_for_acks(100)
    judge(load)
    keys = [p for p in (local.state / "secrets").rglob("*") if p.is_file() and not p.is_symlink()]
    assert len(keys) > 8
    assert {stat.S_IMODE(p.stat().st_mode) for p in keys} == {0o600}


def _clients_ca() -> str:
    return "secrets/default/main-clients-ca/ca.crt"


def test_certificates_and_cas_change_under_load(local: Local) -> None:
    """Renewal, then a rotation of both CAs: nothing is lost, no client fails, nothing restarts."""
    before = local.settle()
    first = all_served(local)
    with Load(local, "orders", partitions=6, per_second=200, security=librdkafka(local)) as load:
        load.wait_for_acks(100)
        local.annotations["odradek.dev/renew-certificates"] = "1"
        began = time.monotonic()
        local.settle()
        renewed, renewal_s = all_served(local), time.monotonic() - began
        local.annotations["odradek.dev/rotate-ca"] = "1"
        began, steps = time.monotonic(), 0
        local.step()
        while not local.step().settled:  # a new client connects in every phase
            new_connection(local, trust_file(local).read_bytes())
            steps += 1
            assert time.monotonic() < began + 120, local.words(local.runtime.report)
        rotation_s = time.monotonic() - began
        rotated = all_served(local)
        load.wait_for_acks(200)
    after = local.settle()
    judge(load)
    assert not {c.fingerprint for c in first} & {c.fingerprint for c in renewed}
    assert {c.issuer_key_id for c in first} == {c.issuer_key_id for c in renewed}
    (authority,) = read_bundle(trust_file(local).read_bytes())
    assert {c.issuer_key_id for c in rotated} == {authority[1].key_id}
    assert {c.issuer_key_id for c in first} != {authority[1].key_id}
    assert before.pids == after.pids, "a broker was restarted"
    print(
        f"\nrenewal of 3 brokers {renewal_s:.1f} s, rotation of both CAs {rotation_s:.1f} s with "
        f"{steps} new clients meanwhile, 0 restarts; {costs(load)}"
    )


def test_an_open_listener_is_closed_and_opened_again_under_load(tmp_path: Path) -> None:
    """A cluster with an open listener and one with TLS: clients move, the open one is closed.

    1. Anonymous clients use the open listener; a user with ACLs is added.
    2. Clients move to TLS and SCRAM, at the same addresses as later.
    3. The open listener is closed by a roll, then opened again by another one: nothing is lost.
    """
    tls = {
        "name": "clients",
        "port": 9095,
        "tls": True,
        "authentication": {"type": "scram-sha-512"},
    }
    plain = {"name": "plaintext", "port": 9092}
    with Local(tmp_path, brokers=3, listeners=[plain, tls]) as local:
        local.topic("orders", **TOPIC)
        before = local.settle().status.listeners
        anonymous = KafkaClient(before[0].bootstrap_servers, ClientSettings(deadline_s=5))
        assert "orders" in anonymous.metadata().topics
        anonymous.close()
        add_user(local, "orders")
        security = {**librdkafka(local), "bootstrap.servers": before[1].bootstrap_servers}
        with Load(local, "orders", partitions=6, per_second=200, security=security) as load:
            load.wait_for_acks(100)
            local.spec["listeners"] = [tls]
            local.spec["security"] = "strict"
            local.done.clear()
            closed = local.settle(240).status.listeners
            assert closed == before[1:], "the listener keeps its addresses"
            rolled = [line for line in local.done if line.startswith("restart")]
            assert len(rolled) == 3, rolled
            with pytest.raises(ClientError):
                KafkaClient(before[0].bootstrap_servers, ClientSettings(deadline_s=3)).metadata()
            local.spec["listeners"] = [plain, tls]
            local.spec["security"] = "open"
            assert local.settle(240).status.listeners == before
            load.wait_for_acks(100)
        judge(load)
        print(f"\nclosed and opened again; {costs(load)}")


def test_a_ca_that_expired_is_replaced_and_the_outage_is_named(tmp_path: Path) -> None:
    """No runtime ran in time: the brokers run on, with certificates of a CA that is over.

    1. The cluster CA, and what it signed, ended an hour ago.
    2. The runtime says so, makes a new one, and the brokers load it without a restart.
    3. Clients with the new bundle get in, those with the old one do not.
    """
    spec = {"security": "strict", "certificates": {"caOverlapHours": 0}}
    with Local(tmp_path, brokers=3, **spec) as local:
        local.topic("orders", **TOPIC)
        before = local.settle(300)
        add_user(local, "orders")
        secrets = local.runtime.clusters[KEY].certificates.secrets
        ended = time.time() - 3600
        expired = new_ca("main cluster CA 1", ended - days(10), days(10))
        names = "main-cluster-ca", "main-brokers"
        found = {name: dict(content) for name, content in secrets.read(names).items()}
        found["main-cluster-ca"] |= {
            "ca.crt": expired.certificate_pem, "ca.key": expired.key_pem
        }  # fmt: skip
        for key in [one for one in found["main-brokers"] if one.endswith(".pem")]:
            own = Subject("odradek-broker", "odradek.dev", ("localhost",), ("127.0.0.1",))
            pair = issue(expired, own, Usage.SERVER_AND_CLIENT, ended - days(9), days(9))
            found["main-brokers"][key] = pair.key_pem + pair.certificate_pem
        for name, content in found.items():
            secrets.write(name, content)
        said = "\n".join(local.step().clusters[KEY].plan)
        assert "the cluster CA expired at" in said
        assert "connections fail until nodes and clients have the new one" in said
        after = local.settle(300)
        assert before.pids == after.pids, "a broker was restarted"
        new_connection(local, trust_file(local).read_bytes())
        with pytest.raises(ClientError):
            new_connection(local, expired.certificate_pem)


@pytest.mark.java
def test_dedicated_controllers_change_their_certificates_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller of Apache Kafka is asked over its own listener, and loads its files again."""
    monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    spec = {"security": "strict", "certificates": {"caOverlapHours": 0}}
    with Local(tmp_path, brokers=1, engine="apache", controllers={"replicas": 1}, **spec) as local:
        before = local.settle(300)
        platform = local.runtime.clusters[KEY].platform
        controller = internal_address(platform.running()[10_000])
        first = served(controller)
        local.annotations["odradek.dev/rotate-ca"] = "1"
        after = local.settle(300)
        (authority,) = read_bundle(trust_file(local).read_bytes())
        assert first.issuer_key_id != authority[1].key_id
        assert served(controller).issuer_key_id == authority[1].key_id
        assert before.pids == after.pids, "a node was restarted"
