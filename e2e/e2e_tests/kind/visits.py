"""The pipeline of the Spark stories: numbered visits from a topic into a table, counted at the end.

    visits.cluster(story)
    n = visits.driver_is_killed(story)       # every record is in the table, once

The table is read back by a second pipeline, mode batch, which writes its counts to a topic: only
Spark knows which files of a table are committed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
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


def cluster(story: Story) -> None:
    story.cluster(brokers=3)
    for topic in ("visits", "verdicts"):
        story.topic(topic, partitions=3, replicationFactor=3)
    story.apply(claim())
    story.settle()


def driver_is_killed(story: Story) -> int:
    """How many records were written and counted.

    1. Records are produced continuously. The pipeline's driver and executor write them to a table.
    2. The driver is killed (no grace); another is started and continues from the checkpoint.
    3. Records end; lag 0; a batch pipeline counts the rows of the table: as many as were written.
    """
    with written(story, "visits") as sent:
        story.apply(pipeline("table", to_table()))
        wait(story, lambda: pipeline_status(story, "table").get("batch", -1) >= 1, "two batches")
        assert pipeline_status(story, "table")["state"] == "RUNNING"
        pods = driver_and_executor(story)
        for role in ("driver", "executor"):
            (container,) = pods[role]["spec"]["containers"]
            assert container["securityContext"]["readOnlyRootFilesystem"], role
        first = pods["driver"]["metadata"]["uid"]
        story.delete("Pod", "table-driver", force=True)
        wait(story, lambda: driver_uid(story) not in ("", first), "another driver")
        wait(story, lambda: pipeline_status(story, "table").get("restarts") == 1, "it is counted")
        wait(story, lambda: is_read_again(story, first), "a batch of the new driver")
    wait_until_all_is_read(story)
    assert_each_counted_once(story, len(sent))
    return len(sent)


def wait_until_all_is_read(story: Story) -> None:
    """Until the driver has reached the end of the topic, after this moment."""
    now = datetime.now(UTC).isoformat()
    wait(story, lambda: _all_read(story, now), "all is read")


def assert_each_counted_once(story: Story, n: int) -> None:
    """A batch pipeline counts the rows of the table."""
    story.apply(pipeline("check", check(), mode="batch"))
    wait(
        story, lambda: pipeline_status(story, "check").get("state") == "COMPLETED", "it is counted"
    )
    verdicts = records(story, "verdicts")
    assert {"rows": n, "different": n, "first": 0, "last": n - 1} in verdicts, (n, verdicts)


def delete_all(story: Story, *pipelines: str) -> None:
    """With them everything is deleted that they created."""
    for name in pipelines:
        story.delete_and_wait("SparkPipeline", name)
    wait(story, lambda: not left_over(story), "nothing is left")


def pipeline(name: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
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


def to_table() -> dict[str, Any]:
    form = {"type": "json", "schema": SCHEMA}
    return {
        "sources": [{"name": "visits", "topics": ["visits"], "format": form}],
        "sink": {"table": {"path": "/data/visits"}},
        "trigger": "2 seconds",
    }


def check() -> dict[str, Any]:
    columns = "count(*) AS rows, count(DISTINCT n) AS different, min(n) AS first, max(n) AS last"
    files = {"path": "/data/visits"}
    return {
        "sources": [
            {"name": "rows", "files": files, "format": {"type": "parquet", "schema": SCHEMA}}
        ],
        "steps": [{"sql": f"SELECT {columns} FROM rows"}],
        "sink": {"topic": {"name": "verdicts"}},
    }


def claim() -> dict[str, Any]:
    """Local volumes exist on one node, so all pods that use the claim run there."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "pipelines"}, "spec": spec}  # fmt: skip


# -- what is seen ----------------------------------------------------------------------------------


def wait(story: Story, condition: Callable[[], bool], what: str) -> None:
    story.wait_until(condition, what, SPARK_S)


def pipeline_status(story: Story, name: str) -> dict[str, Any]:
    found: dict[str, Any] = story.get("SparkPipeline", name).get("status") or {}
    return found


def driver_and_executor(story: Story) -> dict[str, dict[str, Any]]:
    found = story.find("Pod", "odradek.dev/pipeline=table")
    return {one["metadata"]["labels"]["spark-role"]: one for one in found}


def driver_uid(story: Story) -> str:
    driver = driver_and_executor(story).get("driver")
    return str(driver["metadata"]["uid"]) if driver else ""


def progress(story: Story) -> dict[str, Any]:
    """The progress that the current driver writes to its pod's annotation."""
    driver = driver_and_executor(story).get("driver") or {"metadata": {}}
    text = (driver["metadata"].get("annotations") or {}).get("odradek.dev/progress", "{}")
    found: dict[str, Any] = json.loads(text)
    return found


def is_read_again(story: Story, first: str) -> bool:
    queries = progress(story).get("queries", {})
    rows: int = queries.get("main", {}).get("rows", 0)
    return driver_uid(story) != first and rows > 0


def _all_read(story: Story, since: str) -> bool:
    main = progress(story).get("queries", {}).get("main", {})
    return bool(main.get("checkpoint", "") > since and main["lag"] == {"visits": 0})


def left_over(story: Story) -> list[str]:
    found = [one for kind in MADE for one in story.find(kind)]
    labels = [(one["metadata"]["name"], one["metadata"].get("labels") or {}) for one in found]
    ours = ("odradek.dev/pipeline", "sparkoperator.k8s.io/app-name", "spark-role")
    return [name for name, given in labels if any(label in given for label in ours)]


# -- clients outside -------------------------------------------------------------------------------


@contextmanager
def written(story: Story, topic: str, first: int = 0) -> Iterator[list[int]]:
    """Produces numbered records continuously; at the end all of them are acknowledged."""
    producer = Producer({"bootstrap.servers": story.bootstrap, "enable.idempotence": True})
    sent: list[int] = []
    failed: list[str] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(1 / PER_SECOND):
            n = first + len(sent)
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


def records(story: Story, topic: str) -> list[dict[str, Any]]:
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
