"""A client in a pod of the story's namespace: kafka-python, which none of our images has.

It is pure Python, so a ConfigMap carries it as a zip (about 560 KB; 1 MB is the limit) into a pod
of the operator's image.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import time
import zipfile
from pathlib import Path
from typing import Any

from e2e_tests.kind.story import CLUSTER, Story
from odradek_images.table import IMAGES, version

CLIENT = "kafka-python"  # the ConfigMap

PROGRAM = """
import json, os, sys, time
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import TopicAuthorizationFailedError

server, command, topic = sys.argv[1:4]
settings = {"bootstrap_servers": server}
if "USERNAME" in os.environ:
    settings |= {"bootstrap_servers": os.environ["BOOTSTRAP_SERVERS"].split(","),
                 "security_protocol": "SASL_SSL", "ssl_cafile": "/user/ca.crt",
                 "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": os.environ["USERNAME"],
                 "sasl_plain_password": os.environ["PASSWORD"]}

def partitions(consumer):
    return [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]

def describe():
    admin = KafkaAdminClient(**settings)
    brokers = admin.describe_cluster()["brokers"]
    (found,) = admin.describe_topics([topic])
    return {
        "brokers": [{"id": b.get("broker_id", b.get("node_id")), "rack": b["rack"]}
                    for b in brokers],
        "partitions": [
            {"replicas": sorted(p.get("replica_nodes", p.get("replicas"))),
             "isr": sorted(p.get("isr_nodes", p.get("isr")))} for p in found["partitions"]
        ],
    }

def roundtrip(count):
    producer = KafkaProducer(**settings, acks="all")
    sent = [producer.send(topic, b"%d" % n) for n in range(count)]
    producer.flush()
    assert all(one.succeeded() for one in sent)
    consumer = KafkaConsumer(topic, **settings, group_id="inside",
                             auto_offset_reset="earliest", consumer_timeout_ms=120000)
    read = set()
    for record in consumer:
        read.add(record.value)
        if len(read) == count:
            break
    consumer.close()
    return {"sent": len(sent), "read": len(read)}

def count():
    consumer = KafkaConsumer(**settings)
    all_of_it = partitions(consumer)
    ends, begins = consumer.end_offsets(all_of_it), consumer.beginning_offsets(all_of_it)
    return {"records": sum(ends[p] - begins[p] for p in all_of_it)}

def reaches(wanted):
    while (found := count())["records"] < wanted:
        time.sleep(1)
    return found

def denied():  # by the topic's ACL: without idempotence, which needs a right of its own to begin
    producer = KafkaProducer(**settings, acks="all", enable_idempotence=False)
    try:
        producer.send(topic, b"x").get(60)
    except TopicAuthorizationFailedError:
        return {"denied": True}
    return {"denied": False}

commands = {"describe": describe, "roundtrip": roundtrip, "count": count, "reaches": reaches,
            "denied": denied}
print(json.dumps(commands[command](*map(int, sys.argv[4:]))))
"""


def run_inside(story: Story, *words: str, user: str = "") -> dict[str, Any]:
    """Runs a command of PROGRAM in a pod; the JSON that it printed.

    With `user` the pod gets addresses, password and trust from the Secret of that KafkaUser.
    """
    _provide_client(story)
    name = f"client-{words[0]}-{int(time.time() * 1000) % 1_000_000}"
    server = f"{CLUSTER}-bootstrap.{story.namespace}.svc:9092"
    pod = _pod(name, ["python3", "-c", PROGRAM, server, *words])
    if user:
        _log_in(pod["spec"], user)
    story.apply(pod)
    done = ("Succeeded", "Failed")
    story.wait_until(lambda: story.get("Pod", name)["status"].get("phase") in done, name)
    log = story.kubectl("logs", name)
    assert story.get("Pod", name)["status"]["phase"] == "Succeeded", log
    found: dict[str, Any] = json.loads(log.splitlines()[-1])
    story.delete("Pod", name)
    return found


def _provide_client(story: Story) -> None:
    """The ConfigMap, unless an earlier pod of this story has made it."""
    if story.uid("ConfigMap", CLIENT):
        return
    archive = story.directory / "kafka.zip"
    write_client(archive)
    content = base64.b64encode(archive.read_bytes()).decode()
    story.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CLIENT},
            "binaryData": {archive.name: content},
        }
    )


def write_client(archive: Path) -> None:
    """The package as Python imports it from a zip file, with its schemas."""
    spec = importlib.util.find_spec("kafka")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(package.rglob("*")):
            if path.suffix in (".py", ".json"):
                out.write(path, path.relative_to(package.parent))


def _pod(name: str, command: list[str]) -> dict[str, Any]:
    container = {
        "name": "client",
        "image": f"{IMAGES['operator'].repository}:{version()}",
        "command": command,
        "env": [{"name": "PYTHONPATH", "value": "/client/kafka.zip"}],
        "volumeMounts": [{"name": "client", "mountPath": "/client"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": False,
                 "securityContext": security, "containers": [container],
                 "volumes": [{"name": "client", "configMap": {"name": CLIENT}}]},
    }  # fmt: skip


def _log_in(pod: dict[str, Any], secret: str) -> None:
    (container,) = pod["containers"]
    container["env"] += [
        {
            "name": key.upper().replace(".", "_"),
            "valueFrom": {"secretKeyRef": {"name": secret, "key": key}},
        }
        for key in ("username", "password", "bootstrap.servers")
    ]
    container["volumeMounts"].append({"name": "user", "mountPath": "/user"})
    trust = {"secretName": secret, "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    pod["volumes"].append({"name": "user", "secret": trust})
