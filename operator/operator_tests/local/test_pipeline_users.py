"""A streaming pipeline with a user of its own on the local runtime, with Spark.

1. The user may do nothing: the driver ends, its status shows the missing ACL, and it is started
   again until the ACL is there. The sink's ACL is missing then, and is shown in the same way.
2. Both are granted: the query runs, with no change of the pipeline.
3. The password is rotated while records arrive. Then every broker restarts, so that all clients
   of the query connect anew. The same driver goes on, and every record is there.
4. No password is in files that the driver wrote.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from odradek_api.kafka_user.rules import ROTATE_ANNOTATION
from odradek_operator.local.pipelines import PipelineReport
from odradek_operator.local.users import LocalUserSecrets
from odradek_testkit.load import Load
from operator_tests.local.local import KEY, Local
from operator_tests.local.test_users import librdkafka_of

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

PATIENCE_S = 400.0  # a driver on a busy machine
PARTITIONS = 3
TOPIC = {"partitions": PARTITIONS, "replicationFactor": 3, "config": {"min.insync.replicas": 2}}


def allow(kind: str, name: str, *operations: str) -> dict[str, Any]:
    return {"resource": {"type": kind, "name": name}, "operations": list(operations)}


READ, WRITE = allow("topic", "visits", "read"), allow("topic", "copies", "write")


def report(local: Local) -> PipelineReport:
    return local.runtime.report.pipelines["default/copy"]


def message(local: Local) -> str:
    status = report(local).status
    return f"{status.field}: {status.message}" if status is not None else ""


def password(local: Local) -> str:
    found = LocalUserSecrets(local.state).find("default/etl")
    assert found is not None
    return found.data["password"].decode()


def numbers(local: Local, topic: str) -> set[int]:
    """All values of the topic, as the user shop reads them."""
    security = librdkafka_of(local, "shop")
    consumer = Consumer({**security, "group.id": "final", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found, ends = set(), 0
    while ends < PARTITIONS:
        (record,) = consumer.consume(1, PATIENCE_S)
        if record.error() is not None:
            ends += 1
        else:
            value = record.value() or b""
            found.add(int(json.loads(value)["value"] if topic == "copies" else value))
    consumer.close()
    return found


def written(load: Load) -> set[int]:
    return {write.number for write in load.history.acked()}


def test_a_pipeline_as_a_user(tmp_path: Path) -> None:
    with Local(tmp_path, brokers=3, security="strict") as local:
        for topic in ("visits", "copies"):
            local.topic(topic, **TOPIC)
        local.user("shop", acls=[allow("topic", "visits", "read", "write"),
                                 allow("topic", "copies", "read"),
                                 allow("group", "final", "read")])  # fmt: skip
        local.user("etl")
        local.pipeline(
            "copy",
            user={"name": "etl"},
            sources=[{"name": "visits", "topics": ["visits"], "format": {"type": "text"}}],
            sink={"topic": {"name": "copies"}},
            trigger="1 second",
            restartPolicy={"intervalSeconds": 1},
            sparkConf={"spark.sql.shuffle.partitions": 1},
        )
        local.settle(300)
        for acls, missing in (([], READ), ([READ], WRITE)):
            local.users["etl"]["acls"] = acls
            (name,) = {missing["resource"]["name"]}
            entry = f"{{resource: {{type: topic, name: {name}}}, operations: {_list(missing)}}}"
            local.until(lambda _, entry=entry: entry in message(local), PATIENCE_S)  # type: ignore[misc]
        local.users["etl"]["acls"] = [READ, WRITE]
        security = librdkafka_of(local, "shop")
        with Load(local, "visits", partitions=PARTITIONS, per_second=20, security=security) as load:
            local.until(lambda _: _batch(local) >= 1, PATIENCE_S)
            before, first = report(local), password(local)
            local.user_annotations["etl"] = {ROTATE_ANNOTATION: "1"}
            local.settle(300)
            assert password(local) != first
            load.wait_for_acks(20)
            local.annotations["odradek.dev/restart"] = "1"
            pids = local.runtime.report.clusters[KEY].pids
            local.settle(300)
            assert not set(pids.values()) & set(local.runtime.report.clusters[KEY].pids.values())
            load.wait_for_acks(20)
        wanted = written(load)
        local.until(lambda _: numbers(local, "copies") >= wanted, PATIENCE_S)
        assert numbers(local, "visits") == numbers(local, "copies")
        after = report(local)
        assert (after.pid, after.restarts) == (before.pid, before.restarts), "the query went on"
        files = [p for p in (local.state / "pipeline.default.copy").rglob("*") if p.is_file()]
        assert any(path.name == "driver.out" for path in files)
        for secret in (first, password(local)):
            assert not [path for path in files if secret.encode() in path.read_bytes()]


def _list(acl: dict[str, Any]) -> str:
    return f"[{', '.join(acl['operations'])}]"


def _batch(local: Local) -> int:
    status = report(local).status
    return max((q.batch for q in status.queries.values()), default=-1) if status else -1
