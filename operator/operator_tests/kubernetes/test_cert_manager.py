"""cert-manager signs what brokers show to clients: on a real API server, with a stand-in for it.

Its controllers are not started here: a function of this test signs Certificates, as they would. The
definition has the fields of theirs that the operator writes.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from typing import Any

import yaml
from lightkube.resources.core_v1 import Secret

from odradek_operator.kubernetes.cluster_worker import Outcome
from odradek_operator.security.pki import KeyPair, Subject, Usage, days, issue, new_ca
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import World

TEXT, TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
SPEC = {
    "type": "object",
    "required": ["issuerRef", "secretName"],
    "properties": {
        "secretName": TEXT,
        "duration": TEXT,
        "renewBefore": TEXT,
        "dnsNames": TEXTS,
        "ipAddresses": TEXTS,
        "usages": TEXTS,
        "issuerRef": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": TEXT, "kind": TEXT, "group": TEXT},
        },
        "privateKey": {
            "type": "object",
            "properties": {
                "algorithm": {"type": "string", "enum": ["RSA", "ECDSA", "Ed25519"]},
                "encoding": {"type": "string", "enum": ["PKCS1", "PKCS8"]},
                "rotationPolicy": {"type": "string", "enum": ["Never", "Always"]},
                "size": {"type": "integer"},
            },
        },
    },
}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "certificates.cert-manager.io"},
    "spec": {
        "group": "cert-manager.io",
        "scope": "Namespaced",
        "names": {"kind": "Certificate", "plural": "certificates", "singular": "certificate"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}},
            }
        ],
    },
}
STRICT: dict[str, Any] = {"security": "strict", "certificates": {"issuerRef": {"name": "company"}}}


def define(kubernetes: ControlPlane) -> None:
    kubernetes.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(DEFINITION))
    name = DEFINITION["metadata"]["name"]
    kubernetes.kubectl("wait", "--for=condition=Established", f"crd/{name}")
    kubernetes.kubectl("get", "certificates.cert-manager.io", "--all-namespaces")


def certificates(world: World) -> dict[str, dict[str, Any]]:
    args = ("get", "certificates.cert-manager.io", "-n", world.namespace, "-o", "json")
    items = json.loads(world.kubernetes.kubectl(*args))["items"]
    return {one["metadata"]["name"]: one for one in items}


def sign(world: World, ca: KeyPair) -> None:
    """As cert-manager does: a Secret of type kubernetes.io/tls for each Certificate."""
    for one in certificates(world).values():
        spec = one["spec"]
        subject = Subject(
            "broker", dns=tuple(spec["dnsNames"]), ips=tuple(spec.get("ipAddresses", ()))
        )
        pair = issue(ca, subject, Usage.SERVER, time.time(), days(90))
        content = {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem,
                   "ca.crt": ca.certificate_pem}  # fmt: skip
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": spec["secretName"], "namespace": world.namespace},
            "data": {key: b64encode(value).decode() for key, value in content.items()},
        }
        world.kubernetes.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(secret))


def data(world: World, name: str) -> dict[str, str]:
    return dict(world.own.get(Secret, name, namespace=world.namespace).data or {})


def test_certificates_are_requested_used_and_followed(world: World) -> None:
    world.cluster(brokers=3, **STRICT)
    assert world.one_pass() is Outcome.WAITING
    assert world.worker.failures[0].startswith(
        "spec.certificates.issuerRef: the API server does not"
    )
    define(world.kubernetes)
    assert world.one_pass() is Outcome.WAITING
    made = certificates(world)
    assert sorted(made) == ["main-listener-0", "main-listener-1", "main-listener-2"]
    spec = made["main-listener-0"]["spec"]
    assert f"main-bootstrap.{world.namespace}.svc" in spec["dnsNames"]
    assert spec["issuerRef"] == {"name": "company", "kind": "Issuer", "group": "cert-manager.io"}
    assert "Secret main-listener-0 does not exist" in world.worker.failures[0]
    ca = new_ca("company", time.time(), days(365))
    sign(world, ca)
    world.settle()
    assert world.condition("Ready") == "True AllBrokersReady"
    first = data(world, "main-brokers")
    names = {one["name"] for one in world.status()["certificates"]}
    assert {"listeners of broker 0", "broker 0"} <= names
    assert data(world, "main-trust")["listeners-ca.crt"] == b64encode(ca.certificate_pem).decode()
    uids = world.pod_uids()
    sign(world, ca)
    world.settle()
    second = data(world, "main-brokers")
    assert first["broker-0.pem"] == second["broker-0.pem"], "the nodes' own ones stay"
    assert first["listener-0.pem"] != second["listener-0.pem"]
    assert sorted(world.pod_uids()) == sorted(uids), "no pod was restarted"
