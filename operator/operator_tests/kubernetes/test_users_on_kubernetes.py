"""KafkaUsers as resources: made, changed, refused, deleted; namespaces terminate.

The operator is killed at every one of its writes in test_operator_is_killed.py.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Secret

from odradek_api.kafka_user.rules import ROTATE_ANNOTATION
from odradek_operator.kubernetes.objects import USER_FINALIZER
from odradek_operator.security.pki import read
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import World
from odradek_testkit.waiting import wait_until

READ = [{"resource": {"type": "topic", "name": "orders"}, "operations": ["read"]}]


@pytest.fixture
def world(kubernetes: ControlPlane, namespace: str) -> Iterator[World]:
    made = World(kubernetes, namespace)
    made.cluster(brokers=1)
    made.settle()
    yield made
    made.close()


def secret(world: World, name: str, namespace: str = "") -> dict[str, str] | None:
    try:
        found = world.own.get(Secret, name, namespace=namespace or world.namespace)
    except ApiError as error:
        if error.status.code != 404:
            raise
        return None
    data = {key: base64.b64decode(value) for key, value in (found.data or {}).items()}
    return {key: value.decode(errors="replace") for key, value in data.items()}


def delete(world: World, kind: str, name: str, namespace: str = "") -> None:
    args = ("delete", kind, name, "-n", namespace or world.namespace, "--wait=false")
    world.kubernetes.kubectl(*args)


def ready(world: World, name: str) -> str:
    return world.condition("Ready", "KafkaUser", name)


def test_made_changed_and_deleted(world: World) -> None:
    world.user("alice", acls=READ, quotas={"producerByteRate": 5})
    world.settle()
    made = secret(world, "alice")
    assert made is not None
    assert made["username"] == "alice"
    assert made["password"] == world.kafka.passwords["alice"]
    assert world.kafka.users.acls is not None
    assert [acl.principal for acl in world.kafka.users.acls] == ["User:alice"]
    assert world.kafka.users.quotas == {(("user", "alice"),): {"producer_byte_rate": 5.0}}
    document = world.get("KafkaUser", "alice")
    assert document is not None
    assert document["metadata"]["finalizers"] == [USER_FINALIZER]
    assert document["status"]["principal"] == "User:alice"
    assert document["status"]["secret"] == f"{world.namespace}/alice"
    assert ready(world, "alice") == "False NoListener", "the cluster is open"
    assert made["password"] not in str(document)
    events = world.kubernetes.kubectl("get", "events", "-n", world.namespace, "-o", "yaml")
    assert "lacks ALLOW READ on topic orders" in events
    assert made["password"] not in events
    writes = len(world.wire.writes)
    world.one_pass()
    assert world.wire.writes[writes:] == [], "a pass that finds nothing new writes nothing"
    world.user("alice", {ROTATE_ANNOTATION: "1"})
    world.settle()
    rotated = secret(world, "alice")
    assert rotated is not None
    assert rotated["password"] != made["password"]
    assert world.kafka.passwords["alice"] == rotated["password"]
    assert (world.kafka.users.acls, world.kafka.users.quotas) == (frozenset(), {})
    delete(world, "kafkauser", "alice")
    world.settle()
    assert world.get("KafkaUser", "alice") is None
    assert world.kafka.users.scram == {}
    assert secret(world, "alice") is None


def test_a_password_from_a_secret(world: World) -> None:
    source = {"type": "scram-sha-256", "passwordFrom": {"name": "mine"}}
    world.user("alice", authentication=source)
    world.settle()
    assert ready(world, "alice") == "False PasswordMissing"
    for text in ("first\n", "second"):
        given = Secret(
            metadata=ObjectMeta(name="mine", namespace=world.namespace),
            data={"password": base64.b64encode(text.encode()).decode()},
        )
        world.own.apply(given, field_manager="user", force=True)
        world.settle()
        assert world.kafka.passwords["alice"] == text.strip()
        assert world.kafka.users.scram["alice"].keys() == {1}


def test_a_secret_of_somebody_else_is_left_alone(world: World) -> None:
    foreign = Secret(
        metadata=ObjectMeta(name="alice", namespace=world.namespace),
        data={"token": base64.b64encode(b"x").decode()},
    )
    world.own.create(foreign)
    world.user("alice", acls=READ)
    world.settle()
    assert ready(world, "alice") == "False SecretTaken"
    assert secret(world, "alice") == {"token": "x"}
    assert world.kafka.users.scram == {}
    delete(world, "kafkauser", "alice")
    world.settle()
    assert world.get("KafkaUser", "alice") is None
    assert secret(world, "alice") == {"token": "x"}


def test_a_secret_that_somebody_changed_is_written_again(world: World) -> None:
    world.user("alice")
    world.settle()
    before = secret(world, "alice")
    world.own.patch(Secret, "alice", {"data": {"username": "eA==", "more": "eA=="}},
                    namespace=world.namespace)  # fmt: skip
    world.settle()
    assert secret(world, "alice") == before
    delete(world, "secret", "alice")
    world.settle()
    after = secret(world, "alice")
    assert after is not None
    assert world.kafka.passwords["alice"] == after["password"]


def test_two_resources_of_one_principal(world: World) -> None:
    world.user("alice", acls=READ)
    world.settle()
    world.user("a-rival", name="alice")
    world.settle()
    assert ready(world, "a-rival") == "False Conflict"
    delete(world, "kafkauser", "a-rival")
    world.settle()
    assert world.get("KafkaUser", "a-rival") is None
    assert "alice" in world.kafka.users.scram
    assert world.kafka.users.acls


def guest(world: World, namespace: str, **spec: Any) -> dict[str, Any]:
    ref = {"name": "main", "namespace": world.namespace}
    return {
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "KafkaUser",
        "metadata": {"name": "guest", "namespace": namespace},
        "spec": {"cluster": ref, **spec},
    }


def test_another_namespace_is_accepted_withdrawn_and_terminates(
    kubernetes: ControlPlane, world: World
) -> None:
    other = f"{world.namespace[:40]}-guest"
    kubernetes.kubectl("create", "namespace", other)
    world.namespaces = [world.namespace, other]
    kubernetes.apply(guest(world, other))
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].reason}'
    get = ("get", "kafkauser", "guest", "-n", other, "-o", path)
    world.settle()
    assert kubernetes.kubectl(*get) == "NotAccepted"
    assert world.kafka.users.scram == {}
    world.cluster(brokers=1, userNamespaces=[other])
    world.settle()
    assert world.kafka.users.scram.keys() == {"guest"}
    assert secret(world, "guest", other) is not None
    world.cluster(brokers=1)
    world.settle()
    assert kubernetes.kubectl(*get) == "NotAccepted"
    assert world.kafka.users.scram == {}, "it is withdrawn"
    assert secret(world, "guest", other) is None
    world.cluster(brokers=1, userNamespaces=[other])
    world.settle()
    kubernetes.kubectl("delete", "namespace", other, "--wait=false")

    def gone() -> bool:
        world.settle()
        return not kubernetes.kubectl("get", "namespace", other, "--ignore-not-found")

    wait_until(gone, "the namespace is gone")
    assert world.kafka.users.scram == {}


def test_a_secret_in_another_namespace(kubernetes: ControlPlane, world: World) -> None:
    other = f"{world.namespace[:40]}-apps"
    kubernetes.kubectl("create", "namespace", other)
    world.cluster(brokers=1, userNamespaces=[other])
    world.user("alice", secret={"namespace": other, "name": "kafka"})
    world.settle()
    assert secret(world, "kafka", other) is not None
    world.user("alice", secret={"name": "kafka"})
    world.settle()
    assert secret(world, "kafka", other) is None
    here = secret(world, "kafka")
    assert here is not None
    assert here["password"] == world.kafka.passwords["alice"]


def test_users_go_with_their_cluster(world: World) -> None:
    world.user("alice")
    world.settle()
    delete(world, "kafkacluster", "main")
    world.settle()
    assert ready(world, "alice") == "False ClusterMissing"
    delete(world, "kafkauser", "alice")
    world.settle()
    assert world.get("KafkaUser", "alice") is None


def test_users_of_a_strict_cluster(kubernetes: ControlPlane, namespace: str) -> None:
    """A password and a certificate, for the listeners that take them."""
    world = World(kubernetes, namespace)
    clients = {"name": "clients", "port": 9092, "tls": True}
    listeners = [
        {**clients, "authentication": {"type": "scram-sha-512"}},
        {**clients, "name": "machines", "port": 9094, "authentication": {"type": "mtls"}},
    ]
    world.cluster(brokers=1, security="strict", listeners=listeners)
    world.user("alice")
    world.user("robot", authentication={"type": "mtls"}, secret={"keys": ["pkcs12"]})
    world.settle()
    assert ready(world, "alice") == ready(world, "robot") == "True Ready"
    of_alice, of_robot = secret(world, "alice"), secret(world, "robot")
    assert of_alice is not None
    assert of_robot is not None
    assert of_alice["bootstrap.servers"] == f"main-bootstrap.{namespace}.svc:9092"
    assert of_robot["bootstrap.servers"] == f"main-bootstrap.{namespace}.svc:9094"
    ca = secret(world, "main-clients-ca")
    assert ca is not None
    certificate = read(of_robot["user.crt"].encode())
    assert certificate.distinguished_name == "CN=robot"
    assert certificate.issuer_key_id == read(ca["ca.crt"].encode()).key_id
    trusted = secret(world, "main-trust")
    assert trusted is not None
    assert of_alice["ca.crt"] == trusted["cluster-ca.crt"]
    stolen = {"type": "scram-sha-512", "passwordFrom": {"name": "main-clients-ca", "key": "ca.key"}}
    world.user("thief", authentication=stolen)
    world.settle()
    assert ready(world, "thief") == "False PasswordMissing"
    world.close()
