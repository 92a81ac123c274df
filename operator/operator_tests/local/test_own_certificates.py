"""Brokers that show clients a certificate of the user's own CA; it is replaced under load."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from odradek_operator.kafka.routes import given_address
from odradek_operator.security.pki import KeyPair, Subject, Usage, days, issue, new_ca, read
from odradek_protocol.client import ClientError
from odradek_testkit.engines import kafka_jars
from odradek_testkit.load import Load
from operator_tests.local.local import KEY, Local
from operator_tests.local.secured import add_user, librdkafka, new_connection
from operator_tests.local.test_secure import served
from operator_tests.local.test_under_load import TOPIC, costs, judge

# Two clusters of three brokers, one of them of JVMs.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

NAMES = Subject("web", dns=("localhost",), ips=("127.0.0.1",))


def certificate(ca: KeyPair) -> KeyPair:
    return issue(ca, NAMES, Usage.SERVER, time.time(), days(90))


def content(pair: KeyPair, ca: KeyPair) -> dict[str, str]:
    return {
        "tls.crt": pair.certificate_pem.decode(),
        "tls.key": pair.key_pem.decode(),
        "ca.crt": ca.certificate_pem.decode(),
    }


def shown(local: Local) -> set[str]:
    """The fingerprints of what the brokers show clients."""
    running = local.runtime.clusters[KEY].platform.running().values()
    return {served(given_address(settings)).fingerprint for settings in running}


@pytest.mark.parametrize("engine", ["embedded", pytest.param("apache", marks=pytest.mark.java)])
def test_an_own_certificate_is_shown_and_replaced_without_a_restart(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "apache":
        monkeypatch.setenv("ODRADEK_KAFKA_JARS", str(kafka_jars()))
    ca = new_ca("the company", time.time(), days(365))
    first, second = certificate(ca), certificate(ca)
    spec = {"security": "strict", "certificates": {"secretName": "web"}}
    with Local(tmp_path, brokers=3, engine=engine, **spec) as local:
        local.topic("orders", **TOPIC)
        report = local.until(lambda r: bool(r.clusters[KEY].failures))
        assert "Secret web does not exist" in report.clusters[KEY].failures[0]
        assert report.clusters[KEY].pids == {}, "no broker can start without it"
        local.secrets["web"] = content(first, ca)
        local.user("reader", authentication={"type": "scram-sha-512"})
        before = local.settle(300)
        assert shown(local) == {read(first.certificate_pem).fingerprint}
        trusted = local.state / "secrets" / "default" / "reader" / "ca.crt"
        assert trusted.read_bytes() == ca.certificate_pem, "users get the CA to trust"
        add_user(local, "orders")
        new_connection(local, ca.certificate_pem)
        own_ca = local.state / "secrets" / "default" / "main-cluster-ca" / "ca.crt"
        with pytest.raises(ClientError):
            new_connection(local, own_ca.read_bytes())
        login = {**librdkafka(local), "ssl.ca.location": str(trusted)}
        with Load(local, "orders", partitions=6, per_second=100, security=login) as load:
            load.wait_for_acks(100)
            local.secrets["web"] = content(second, ca)
            local.until(lambda _: shown(local) == {read(second.certificate_pem).fingerprint}, 300)
            load.wait_for_acks(100)
        after = local.settle(300)
        judge(load)
        assert before.pids == after.pids, "a broker was restarted"
        print(f"\nreplaced; {costs(load)}")
        local.secrets["web"] |= {"tls.key": first.key_pem.decode()}
        broken = local.until(lambda r: bool(r.clusters[KEY].failures))
        assert "tls.key is not the private key of tls.crt" in broken.clusters[KEY].failures[0]
        assert shown(local) == {read(second.certificate_pem).fingerprint}, "the last one stays"
