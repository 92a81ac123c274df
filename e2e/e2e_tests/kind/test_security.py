"""Clusters with TLS, users and ACLs, from nothing but manifests."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from e2e_tests.kind.inside import run_inside
from e2e_tests.kind.story import (
    API_VERSION,
    CLUSTER,
    Story,
    end_namespace,
    namespace,
    settled,
)
from e2e_tests.kind.visits import claim, pipeline, pipeline_status, wait
from odradek_testkit.kubernetes.client import Document

SCRAM = {"tls": True, "authentication": {"type": "scram-sha-512"}}
LISTENER = {"name": "clients", "port": 9092, **SCRAM}
OUTSIDE = {"name": "outside", "port": 9096, "type": "nodeport", **SCRAM}
ANONYMOUS = [
    {"name": "plaintext", "port": 9092},
    {"name": "external", "port": 9094, "type": "nodeport"},  # Story.bootstrap
]
STRICT: dict[str, Any] = {"security": "strict", "listeners": [LISTENER]}
AT_ONCE = {"caOverlapHours": 0}
THREE_ROLLS_S = 1200.0
ROTATE = "odradek.dev/rotate"


def resource(kind: str, name: str, **spec: Any) -> Document:
    """One that belongs to the cluster."""
    spec = {"cluster": {"name": CLUSTER}, **spec}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def user(story: Story, name: str, *acls: Document, **spec: Any) -> None:
    """Applies a KafkaUser and waits until its Secret can be used."""
    story.apply(resource("KafkaUser", name, acls=list(acls), **spec))
    story.wait_until(lambda: settled(story.get("KafkaUser", name)), f"KafkaUser {name} is Ready")


def allow(kind: str, name: str, *operations: str) -> Document:
    return {"resource": {"type": kind, "name": name}, "operations": list(operations)}


READ_WRITE = (allow("topic", "orders", "read", "write"), allow("group", "inside", "read"))
LOAD = (allow("topic", "orders", "read", "write"), allow("group", "final", "read"))


def secret(story: Story, name: str) -> dict[str, str]:
    data: dict[str, str] = story.get("Secret", name)["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def login(story: Story, name: str) -> dict[str, Any]:
    """librdkafka's settings for a user outside Kubernetes; the CA is in a file."""
    found, trust = secret(story, name), story.directory / f"{name}-ca.crt"
    trust.write_text(found["ca.crt"])
    return {
        "bootstrap.servers": found["bootstrap.servers"],
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": found["username"],
        "sasl.password": found["password"],
        "ssl.ca.location": str(trust),
    }


def phases(story: Story) -> dict[str, str]:
    found = story.status().get("certificates") or []
    return {one["name"]: one.get("phase", "") for one in found}


def trusted(story: Story) -> str:
    return secret(story, f"{CLUSTER}-trust")["cluster-ca.crt"]


def brokers_keys(story: Story) -> dict[str, str]:
    found = secret(story, f"{CLUSTER}-brokers")
    return {name: text for name, text in found.items() if name.endswith(".pem")}


@contextmanager
def another_namespace(story: Story) -> Iterator[Story]:
    """Deleted at the end, while the cluster is still there; the deletion completes."""
    other = Story(story.objects, f"{story.namespace}-team", story.directory)
    story.objects.apply(namespace(other.namespace))
    try:
        yield other
    finally:
        end_namespace(story.objects, other.namespace)


def test_a_secured_cluster_from_nothing(story: Story) -> None:
    """
    1. `kubectl apply` of one file: a strict cluster, a topic and two users.
    2. A pod of one user writes and reads; one of the other, which has no ACL, is refused.
    3. The second user is served when its ACL is there.
    4. Broker pods have no token of a service account.
    """
    storage = {"size": "1Gi", "deletionPolicy": "Delete"}
    cluster = resource("KafkaCluster", CLUSTER, brokers=3, storage=storage, **STRICT)
    del cluster["spec"]["cluster"]
    documents = [
        cluster,
        resource("Topic", "orders", partitions=6, replicationFactor=3),
        resource("KafkaUser", "shop", acls=list(READ_WRITE)),
        resource("KafkaUser", "guest"),
    ]
    manifest = story.directory / "secure.yaml"
    manifest.write_text(yaml.safe_dump_all(documents))
    story.kubectl("apply", "-f", str(manifest))
    story.settle()
    for name in ("shop", "guest"):
        story.wait_until(lambda name=name: settled(story.get("KafkaUser", name)), name)  # type: ignore[misc]
    assert run_inside(story, "roundtrip", "orders", "500", user="shop") == {
        "sent": 500,
        "read": 500,
    }
    assert run_inside(story, "denied", "orders", user="guest") == {"denied": True}
    user(story, "guest", allow("topic", "orders", "write"))
    assert run_inside(story, "denied", "orders", user="guest") == {"denied": False}
    for pod in story.pods().values():
        assert pod["spec"]["automountServiceAccountToken"] is False


def test_a_user_of_another_namespace(story: Story) -> None:
    """
    1. A KafkaUser in another namespace, which the cluster does not list, is not Ready.
    2. It is listed; a pod there uses the Secret, addresses included.
    3. The other namespace is deleted, and nothing of its user is left in Kafka: the name is free.
    """
    story.cluster(**STRICT)
    story.topic("orders", partitions=6, replicationFactor=3)
    story.settle()
    with another_namespace(story) as other:
        theirs = resource("KafkaUser", "team", acls=list(READ_WRITE))
        theirs["spec"]["cluster"]["namespace"] = story.namespace
        other.apply(theirs)
        story.wait_until(lambda: "userNamespaces" in said(other, "team"), "it is refused")
        story.change(userNamespaces=[other.namespace])
        story.wait_until(lambda: settled(other.get("KafkaUser", "team")), "KafkaUser is Ready")
        assert run_inside(other, "roundtrip", "orders", "200", user="team")["sent"] == 200
        story.apply(resource("KafkaUser", "team"))
        story.wait_until(lambda: "Conflict" in said(story, "team"), "the name is taken")
    story.wait_until(lambda: settled(story.get("KafkaUser", "team")), "the name is free")
    assert run_inside(story, "denied", "orders", user="team") == {"denied": True}


def said(story: Story, name: str) -> str:
    """Reasons and messages of a KafkaUser's conditions."""
    status = story.get("KafkaUser", name).get("status") or {}
    return "; ".join(f"{one['reason']}: {one['message']}" for one in status.get("conditions", ()))


def test_certificates_are_replaced_under_load(story: Story) -> None:
    """
    1. A client outside Kubernetes writes with acks=all, over TLS, as a user.
    2. The brokers' certificates are renewed, then both CAs are replaced. No broker restarts.
    3. The client had no error; clients that start now need the new CA from the user's Secret.
    """
    story.cluster(security="strict", listeners=[LISTENER, OUTSIDE], certificates=AT_ONCE)
    story.topic("orders", partitions=6, replicationFactor=3, config={"min.insync.replicas": 2})
    story.settle()
    user(story, "writer", *LOAD, listener=OUTSIDE["name"])
    user(story, "shop", *READ_WRITE)
    before, first, old = story.uids(), brokers_keys(story), trusted(story)
    with story.load("orders", security=login(story, "writer")) as load:
        story.annotate("odradek.dev/renew-certificates", "1")
        story.wait_until(lambda: changed(first, brokers_keys(story)), "new certificates")
        story.settle()
        load.wait_for_acks(100)
        story.annotate("odradek.dev/rotate-ca", "1")
        story.wait_until(lambda: old not in trusted(story), "the old CA is dropped", 900.0)
        story.wait_until(lambda: not any(phases(story).values()), "the rotation has ended")
        story.settle()
        load.wait_for_acks(100)
    for name in ("writer", "shop"):
        story.wait_until(lambda name=name: secret(story, name)["ca.crt"] == trusted(story),  # type: ignore[misc]
                         f"the Secret of {name} has the new CA")  # fmt: skip
    login(story, "writer")  # the file of the reader that checks
    print(f"\nrenewed and both CAs replaced: {story.judge(load)}")
    assert run_inside(story, "roundtrip", "orders", "500", user="shop")["sent"] == 500
    assert story.uids() == before, "no broker restarts for its certificate or a new CA"


def changed(before: dict[str, str], now: dict[str, str]) -> bool:
    return before.keys() == now.keys() and not before.items() & now.items()


def test_an_open_cluster_becomes_a_secured_one(story: Story) -> None:
    """
    1. A client outside Kubernetes writes with acks=all, without a login.
    2. TLS is added, in three rolls, while the client goes on through the open listener.
    3. Users log in, inside and outside, while the open listeners are closed: one more roll.
    """
    tls = [{**LISTENER, "port": 9095}, OUTSIDE]
    story.cluster(listeners=ANONYMOUS)
    story.topic("before", partitions=6, replicationFactor=3, config={"min.insync.replicas": 2})
    story.topic("orders", partitions=6, replicationFactor=3, config={"min.insync.replicas": 2})
    story.settle()
    before = story.uids()
    with story.load("before") as load:
        story.cluster(listeners=[*ANONYMOUS, *tls])
        story.settle(THREE_ROLLS_S)
        load.wait_for_acks(100)
    print(f"\nTLS added: {story.judge(load)}")
    assert not set(before.values()) & set(story.uids().values())
    assert "broker 0" in phases(story)
    user(story, "shop", *READ_WRITE)
    user(story, "writer", *LOAD, listener=OUTSIDE["name"])
    with story.load("orders", security=login(story, "writer")) as load:
        story.cluster(listeners=tls, security="strict")
        story.settle(THREE_ROLLS_S)
        load.wait_for_acks(100)
    print(f"open listeners closed: {story.judge(load)}")
    assert [one["name"] for one in story.status()["listeners"]] == ["clients", "outside"]
    story.wait_until(lambda: story.bootstrap == "", "the open listener's Services are gone")
    assert run_inside(story, "roundtrip", "orders", "500", user="shop")["sent"] == 500


def test_a_pipeline_with_its_own_user(story: Story) -> None:
    """
    1. The user of a pipeline may do nothing: the status of the pipeline shows the missing ACL.
    2. It gets the ACLs, and the pipeline goes on without being touched.
    3. Its password is rotated: the query goes on; a new driver logs in with the new password.
    4. No password is in the SparkApplication, its ConfigMap, or the driver's log.
    """
    story.cluster(**STRICT)
    for topic in ("visits", "copies"):
        story.topic(topic, partitions=3, replicationFactor=3)
    story.apply(claim())
    story.settle()
    group = allow("group", "inside", "read")
    user(story, "shop", allow("topic", "visits", "read", "write"), allow("topic", "copies", "read"),
         group)  # fmt: skip
    user(story, "etl")
    story.apply(pipeline("copy", COPY))
    missing = "{resource: {type: topic, name: visits}, operations: [read]}"
    wait(story, lambda: missing in problem(story), "the status shows the missing ACL")
    user(story, "etl", *RIGHTS)
    wait(story, lambda: pipeline_status(story, "copy")["state"] == "RUNNING", "it goes on")
    write_and_read(story, 200)

    first = secret(story, "etl")["password"]
    restarts = pipeline_status(story, "copy").get("restarts")
    story.patch("KafkaUser", "etl", {"metadata": {"annotations": {ROTATE: "1"}}})
    story.wait_until(lambda: secret(story, "etl")["password"] != first, "a new password")
    story.wait_until(lambda: settled(story.get("KafkaUser", "etl")), "the brokers know it")
    write_and_read(story, 200)
    assert pipeline_status(story, "copy").get("restarts") == restarts, "the query went on"
    texts = [json.dumps(story.find(kind)) for kind in ("SparkApplication", "ConfigMap")]
    texts.append(story.kubectl("logs", "copy-driver"))
    old_driver = story.uid("Pod", "copy-driver")
    story.delete("Pod", "copy-driver", force=True)
    wait(story, lambda: story.uid("Pod", "copy-driver") not in ("", old_driver), "another driver")
    write_and_read(story, 200)
    texts.append(story.kubectl("logs", "copy-driver"))
    for password in (first, secret(story, "etl")["password"]):
        assert not any(password in text for text in texts)


COPY = {
    "user": {"name": "etl"},
    "sources": [{"name": "visits", "topics": ["visits"], "format": {"type": "text"}}],
    "sink": {"topic": {"name": "copies"}},
    "trigger": "2 seconds",
}
RIGHTS = (allow("topic", "visits", "read"), allow("topic", "copies", "write"))


def problem(story: Story) -> str:
    conditions = pipeline_status(story, "copy").get("conditions") or []
    return "; ".join(one["message"] for one in conditions)


def write_and_read(story: Story, more: int) -> None:
    """Writes and reads `more` records as the user shop; waits until the pipeline copied them."""
    before = run_inside(story, "count", "copies", user="shop")["records"]
    assert run_inside(story, "roundtrip", "visits", str(more), user="shop")["sent"] == more
    run_inside(story, "reaches", "copies", str(before + more), user="shop")
