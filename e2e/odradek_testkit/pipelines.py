"""Helpers of tests of pipelines: topics, records in and out, and jobs made of a few words."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek_api.pipeline.job import Job, read_job

PATIENCE_S = 60.0
_numbers = itertools.count()


class Pipelines:
    """Topics and records on one cluster, and jobs whose files are in `directory`."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.directory = directory

    def topic(self, partitions: int = 2, name: str | None = None) -> str:
        """Creates a topic; without `name` under a unique one."""
        name = name or f"topic-{next(_numbers)}-{time.monotonic_ns()}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(name, partitions)]).values():
            future.result(PATIENCE_S)
        return name

    def topics(self) -> set[str]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return set(admin.list_topics(timeout=PATIENCE_S).topics)

    def produce(self, topic: str, values: Iterable[Any], **more: Any) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for value in values:
            data = value if isinstance(value, bytes) or value is None else json.dumps(value)
            producer.produce(topic, data, on_delivery=_delivered, **more)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    def records(self, topic: str, bootstrap: str | None = None) -> list[Message]:
        """All present records, partition by partition."""
        consumer = Consumer({"bootstrap.servers": bootstrap or self.bootstrap, "group.id": "tests",
                             "enable.auto.commit": False, "enable.partition.eof": True,
                             "auto.offset.reset": "earliest"})  # fmt: skip
        partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found, ends, deadline = [], 0, time.monotonic() + PATIENCE_S
        while ends < len(partitions):
            assert time.monotonic() < deadline, f"{topic} was not read to its end"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                ends += 1
            else:
                found.append(message)
        consumer.close()
        return found

    def values(self, topic: str) -> list[Any]:
        return [json.loads(message.value() or b"null") for message in self.records(topic)]

    def document(self, name: str = "test", **spec: Any) -> dict[str, Any]:
        kafka = {"bootstrapServers": self.bootstrap}
        return {
            "name": name,
            "spec": {"kafka": kafka, "mode": "availableNow", **spec},
            "checkpoint": str(self.directory / "checkpoint"),
            "directory": str(self.directory),
            "statusFile": str(self.directory / "status.json"),
        }

    def job(self, name: str = "test", **spec: Any) -> Job:
        return read_job(json.dumps(self.document(name, **spec)).encode())


def _delivered(error: object, _: object) -> None:
    assert error is None, error


def headers(message: Message) -> Mapping[str, bytes]:
    """Of a consumed message: its values are bytes."""
    found = message.headers() or []
    assert isinstance(found, list)
    return {name: value for name, value in found if isinstance(value, bytes)}
