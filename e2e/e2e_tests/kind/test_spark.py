"""A SparkPipeline on Kubernetes: its driver is killed, and no record is lost or duplicated.

The table is read back by a second pipeline, mode batch, which writes its counts to a topic: only
Spark knows which files of a table are committed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from e2e_tests.kind.story import API_VERSION, CLUSTER, Story

PER_SECOND = 20
SPARK_S = 900.0  # a driver and an executor start slowly on two cores that run everything
SMALL = {"memory": "512m", "coreRequest": "200m"}
PODS = {"driver": SMALL, "executor": {**SMALL, "instances": 1}, "volumeClaim": "pipelines"}
SCHEMA = "n BIGINT NOT NULL, page STRING"
MADE = (
    "Pod", "Service", "ServiceAccount", "Role", "RoleBinding", "ConfigMap", "SparkApplication",
)  # fmt: skip


def test_a_driver_is_killed_and_the_table_has_every_record_once(story: Story) -> None:
    """
    1. Records are produced continuously. The pipeline's driver and executor write them to a table.
    2. The driver is killed (no grace); the operator starts another, from the checkpoint.
    3. Records end; lag 0; a batch pipeline counts the rows of the table: as many as were written.
    4. A pipeline with wrong SQL fails once, and its status names the field.
    5. The pipelines are deleted, and with them everything that they created.
    """
    story.cluster(brokers=3)
    for topic in ("visits", "verdicts"):
        story.topic(topic, partitions=3, replicationFactor=3)
    story.apply(_claim())
    story.settle()
    with _written(story, "visits") as written:
        story.apply(_pipeline("table", _to_table()))
        _wait(story, lambda: _status(story, "table").get("batch", -1) >= 1, "two batches")
        assert _status(story, "table")["state"] == "RUNNING"
        pods = _pods(story)
        assert [role for role in pods if role == "driver"] == ["driver"]
        assert pods["executor"]["spec"]["containers"][0]["securityContext"][
            "readOnlyRootFilesystem"
        ]
        first = pods["driver"]["metadata"]["uid"]
        story.delete("Pod", "table-driver", force=True)
        _wait(story, lambda: _uid(story) not in ("", first), "another driver")
        _wait(story, lambda: _status(story, "table").get("restarts") == 1, "it is counted")
        _wait(story, lambda: _again(story, first), "a batch of the new driver")
    ended = datetime.now(UTC).isoformat()
    _wait(story, lambda: _all_read(story, ended), "all is read")

    story.apply(_pipeline("check", _check(), mode="batch"))
    _wait(story, lambda: _status(story, "check").get("state") == "COMPLETED", "it is counted")
    (verdict,) = _records(story, "verdicts")
    n = len(written)
    assert verdict == {"rows": n, "different": n, "first": 0, "last": n - 1}

    wrong = {**_check(), "steps": [{"sql": "SELECT nothing FROM rows"}]}
    story.apply(_pipeline("wrong", wrong, mode="batch"))
    _wait(story, lambda: _status(story, "wrong").get("state") == "FAILED", "it is refused")
    (ready,) = _status(story, "wrong")["conditions"]
    assert ready["message"].startswith("spec.steps[0].sql: "), ready
    assert _status(story, "wrong").get("restarts", 0) == 0, "trying again would not help"

    for pipeline in ("table", "check", "wrong"):
        story.delete_and_wait("SparkPipeline", pipeline)
    _wait(story, lambda: not _left(story), "nothing is left")
    print(f"\n{n} records, the driver killed: {verdict}")


def _pipeline(name: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "SparkPipeline",
        "metadata": {"name": name},
        "spec": {
            "cluster": {"name": CLUSTER},
            "restartPolicy": {"type": "OnFailure", "intervalSeconds": 1},
            "sparkConf": {"spark.sql.shuffle.partitions": 1},
            "kubernetes": PODS,
            **spec,
            **more,
        },
    }


def _to_table() -> dict[str, Any]:
    form = {"type": "json", "schema": SCHEMA}
    return {
        "sources": [{"name": "visits", "topics": ["visits"], "format": form}],
        "sink": {"table": {"path": "/data/visits"}},
        "trigger": "2 seconds",
    }


def _check() -> dict[str, Any]:
    columns = "count(*) AS rows, count(DISTINCT n) AS different, min(n) AS first, max(n) AS last"
    files = {"path": "/data/visits"}
    return {
        "sources": [
            {"name": "rows", "files": files, "format": {"type": "parquet", "schema": SCHEMA}}
        ],
        "steps": [{"sql": f"SELECT {columns} FROM rows"}],
        "sink": {"topic": {"name": "verdicts"}},
    }


def _claim() -> dict[str, Any]:
    """Local volumes exist on one node, so all pods that use the claim run there."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "pipelines"}, "spec": spec}  # fmt: skip


# -- what is seen ----------------------------------------------------------------------------------


def _wait(story: Story, condition: Any, what: str) -> None:
    story.wait_until(condition, what, SPARK_S)


def _status(story: Story, name: str) -> dict[str, Any]:
    found: dict[str, Any] = story.get("SparkPipeline", name).get("status") or {}
    return found


def _pods(story: Story) -> dict[str, dict[str, Any]]:
    found = story.find("Pod", "odradek.dev/pipeline=table")
    return {one["metadata"]["labels"]["spark-role"]: one for one in found}


def _uid(story: Story) -> str:
    driver = _pods(story).get("driver")
    return str(driver["metadata"]["uid"]) if driver else ""


def _progress(story: Story) -> dict[str, Any]:
    """The progress that the current driver writes to its pod's annotation."""
    driver = _pods(story).get("driver") or {"metadata": {}}
    text = (driver["metadata"].get("annotations") or {}).get("odradek.dev/progress", "{}")
    found: dict[str, Any] = json.loads(text)
    return found


def _again(story: Story, first: str) -> bool:
    queries = _progress(story).get("queries", {})
    rows: int = queries.get("main", {}).get("rows", 0)
    return _uid(story) != first and rows > 0


def _all_read(story: Story, since: str) -> bool:
    """Whether the driver has reached the end of the topic since that instant."""
    main = _progress(story).get("queries", {}).get("main", {})
    return bool(main.get("checkpoint", "") > since and main["lag"] == {"visits": 0})


def _left(story: Story) -> list[str]:
    found = [one for kind in MADE for one in story.find(kind)]
    labels = [(one["metadata"]["name"], one["metadata"].get("labels") or {}) for one in found]
    ours = ("odradek.dev/pipeline", "sparkoperator.k8s.io/app-name", "spark-role")
    return [name for name, given in labels if any(label in given for label in ours)]


# -- clients outside -------------------------------------------------------------------------------


@contextmanager
def _written(story: Story, topic: str) -> Iterator[list[int]]:
    """Produces numbered records continuously; at the end all of them are acknowledged."""
    producer = Producer({"bootstrap.servers": story.bootstrap, "enable.idempotence": True})
    sent: list[int] = []
    failed: list[str] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(1 / PER_SECOND):
            n = len(sent)
            value = json.dumps({"n": n, "page": f"/{n % 7}"})
            producer.produce(topic, value, key=str(n), on_delivery=lambda error, _: (
                failed.append(error.str()) if error else None))  # fmt: skip
            sent.append(n)
            producer.poll(0)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield sent
    finally:
        stop.set()
        writer.join()
    assert producer.flush(120) == 0
    assert failed == []


def _records(story: Story, topic: str) -> list[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": story.bootstrap, "group.id": "outside",
                         "enable.partition.eof": True})  # fmt: skip
    consumer.assign([TopicPartition(topic, p, 0) for p in range(3)])
    found, ends, deadline = [], 0, time.monotonic() + 120
    while ends < 3:
        assert time.monotonic() < deadline, f"{topic} could not be read"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            ends += 1
            continue
        found.append(json.loads(message.value() or b"{}"))
    consumer.close()
    return found
