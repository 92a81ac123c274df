"""cert-manager's own controllers sign what brokers show to clients, on a real API server.

test_cert_manager.py has a stand-in for them, and is quick. Brokers are simulated in both.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lightkube.resources.core_v1 import Secret

from odradek_operator.kubernetes.cluster_worker import Outcome
from odradek_testkit.kubernetes.cert_manager import NAMESPACE, CertManager
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.programs import ProgramsMissingError
from odradek_testkit.kubernetes.world import World, three_zones
from odradek_testkit.waiting import wait_until

# An API server of its own, because the definitions of cert-manager stay; and a program to build.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

BROKERS = 3
NAMES = [f"main-listener-{node}" for node in range(BROKERS)]
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def own_kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("kubernetes")
    try:
        with ControlPlane(directory) as running:
            three_zones(running)
            running.kubectl("create", "namespace", NAMESPACE)
            with CertManager(running, directory) as issuer:
                yield running
                issuer.said()
    except ProgramsMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["Issuer", "ClusterIssuer"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def world(own_kubernetes: ControlPlane, kind: str) -> Iterator[World]:
    namespace = f"signed-by-{kind.lower()}"
    own_kubernetes.kubectl("create", "namespace", namespace)
    made = World(own_kubernetes, namespace)
    yield made
    made.close()


def create_issuer(world: World, kind: str) -> None:
    """A CA of its own, signed by itself, and the issuer that signs with it."""
    own = world.namespace if kind == "Issuer" else NAMESPACE
    name = f"company-{kind.lower()}"

    def one(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": name, "namespace": own}
        if kind == "ClusterIssuer":
            metadata.pop("namespace")
        return {"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": metadata,
                "spec": spec}  # fmt: skip

    world.kubernetes.apply(
        one("Issuer", "itself", {"selfSigned": {}}),
        one("Certificate", name, {
            "isCA": True, "commonName": "company", "secretName": name,
            "privateKey": {"algorithm": "ECDSA", "size": 256}, "issuerRef": {"name": "itself"},
        }),
        one(kind, "company", {"ca": {"secretName": name}}),
    )  # fmt: skip


def certificate(world: World, name: str) -> dict[str, Any]:
    where = ("get", "certificates.cert-manager.io", name, "-n", world.namespace, "-o", "json")
    found: dict[str, Any] = json.loads(world.kubernetes.kubectl(*where))
    return found


def renew(world: World, name: str) -> None:
    """As `cmctl renew` does."""
    conditions = certificate(world, name)["status"]["conditions"]
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered",
               "message": "test", "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    status = {"conditions": [*conditions, issuing]}
    world.kubernetes.patch_status("certificates.cert-manager.io", name, status, world.namespace)


def secret(world: World, name: str) -> dict[str, bytes]:
    found = world.own.get(Secret, name, namespace=world.namespace).data or {}
    return {key: b64decode(value) for key, value in found.items()}


def handshake(pem: Path, trusted: str, host: str) -> None:
    """A client that trusts this CA greets a server with this key and chain at this name."""
    client, server = (
        ssl.create_default_context(cadata=trusted),
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
    )
    server.load_cert_chain(pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for one in list(ends):
            try:
                one.do_handshake()
                ends.remove(one)
            except ssl.SSLWantReadError:
                continue


def test_issued_used_renewed_without_a_restart(world: World, kind: str, tmp_path: Path) -> None:
    """1. no issuer: no broker starts, and the failure says why  2. the issuer appears: the brokers
    show its certificates, and clients trust them  3. passes write nothing more  4. cert-manager
    renews them: they are followed, and no pod restarts."""
    reference = {"name": "company", "kind": kind}
    world.cluster(brokers=BROKERS, security="strict", certificates={"issuerRef": reference})
    assert world.one_pass() is Outcome.WAITING
    assert "Secret main-listener-0 does not exist" in world.worker.failures[0]
    create_issuer(world, kind)
    world.settle()
    assert world.condition("Ready") == "True AllBrokersReady"
    for name in NAMES:
        issued = certificate(world, name)
        conditions = {one["type"]: one["status"] for one in issued["status"]["conditions"]}
        assert conditions["Ready"] == "True", issued
        assert issued["metadata"]["generation"] == 1, "nobody but the operator wrote the spec"
        assert secret(world, name)["tls.key"].startswith(b"-----BEGIN PRIVATE KEY-----")  # PKCS8
    first, uids = secret(world, "main-brokers"), world.pod_uids()
    trusted = secret(world, "main-trust")["listeners-ca.crt"].decode()
    for node in range(BROKERS):
        pem = tmp_path / f"{node}.pem"
        pem.write_bytes(first[f"listener-{node}.pem"])
        handshake(pem, trusted, f"main-bootstrap.{world.namespace}.svc")
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(pem, trusted, "elsewhere.example.com")
    world.wire.writes.clear()
    assert world.one_pass() is Outcome.IDLE
    assert world.wire.writes == []

    for name in NAMES:
        renew(world, name)

    def all_followed() -> bool:
        world.settle()
        now = secret(world, "main-brokers")
        return all(now[f"listener-{n}.pem"] != first[f"listener-{n}.pem"] for n in range(BROKERS))

    wait_until(all_followed, "the operator uses the renewed certificates", DEADLINE_S)
    now = secret(world, "main-brokers")
    assert all(now[f"broker-{n}.pem"] == first[f"broker-{n}.pem"] for n in range(BROKERS))
    assert sorted(world.pod_uids()) == sorted(uids), "no pod was restarted"
