"""Commits what a pipeline has read as the offsets of a consumer group, for tools that show lag.

Spark keeps its offsets in the checkpoint, which alone decides where it continues; the group is a
copy. A pipeline with several queries is as far as the slowest of them, partition by partition:

    {"alerts": {"visits": {0: 90}}, "archive": {"visits": {0: 70}}}  →  visits-0: 70
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from odradek_api.pipeline.job import Job, NotReadyError
from odradek_spark.calls import repeat
from odradek_spark.config import librdkafka_config

AT = "spec.consumerGroup"
AGAIN_S = 3600.0  # brokers forget offsets that are not committed for long
TIMEOUT_S = 30.0

logger = logging.getLogger(__name__)
Places = dict[tuple[str, int], int]  # topic and partition → offset


def read_so_far(report: Mapping[str, Any]) -> Places | None:
    """What a query has read, by one of Spark's reports; None before its first batch."""
    found: Places = {}
    for source in report.get("sources") or ():
        if not str(source.get("description") or "").startswith("KafkaV2["):
            continue
        end = source.get("endOffset")
        end = json.loads(end) if isinstance(end, str) else end
        if not isinstance(end, dict):
            return None
        for topic, partitions in end.items():
            for partition, offset in partitions.items():
                place = topic, int(partition)
                found[place] = min(offset, found.get(place, offset))
    return found


def slowest(queries: Iterable[Places]) -> Places:
    found: Places = {}
    for read in queries:
        for place, offset in read.items():
            found[place] = min(offset, found.get(place, offset))
    return found


class PublishedOffsets:
    """Those of one run of a job's queries; commits never make a pipeline fail."""

    def __init__(self, job: Job, queries: Iterable[str]) -> None:
        self._job = job
        self._read: dict[str, Places | None] = dict.fromkeys(queries)
        self._committed: Places = {}
        self._at_s = 0.0
        self._problem = ""
        self._consumers: dict[int, Consumer] = {}  # by source; several sources have one cluster
        if job.spec.consumer_group is not None:
            self._open()

    def seen(self, query: str, report: Mapping[str, Any]) -> None:
        """One of Spark's reports, which follow the commit of their batch."""
        read = read_so_far(report)
        if read is not None and query in self._read:
            self._read[query] = read

    def publish(self) -> None:
        if not self._consumers:
            return
        for consumer in self._consumers.values():
            consumer.poll(0)  # calls _ended
        known = [read for read in self._read.values() if read is not None]
        if len(known) < len(self._read):  # the slowest query is not known yet
            return
        now, places = time.monotonic(), slowest(known)
        if places == self._committed and now - self._at_s < AGAIN_S:
            return
        for number, consumer in self._consumers.items():
            self._commit(consumer, {p: n for p, n in places.items() if self._is_of(number, p[0])})
        self._committed, self._at_s = places, now

    def close(self) -> None:
        """Leaves what is committed; the last commit is awaited."""
        for number, consumer in self._consumers.items():
            own = [
                TopicPartition(topic, partition, offset)
                for (topic, partition), offset in self._committed.items()
                if self._is_of(number, topic)
            ]
            try:
                if own:
                    consumer.commit(offsets=own, asynchronous=False)
            except KafkaException as error:
                self._ended(error.args[0], [])
            consumer.close()
        self._consumers = {}

    def _open(self) -> None:
        """Asks for the group's offsets once: a missing right is found before a batch is read."""
        for number, source in enumerate(self._job.spec.sources):
            if not source.kafka_source:
                continue
            at = f"sources[{number}]"
            config = librdkafka_config(self._job, at, source.cluster, source.kafka, source.user)
            self._check(config)
            self._consumers[number] = Consumer(
                {**config, "group.id": self._job.spec.consumer_group, "enable.auto.commit": False,
                 "log_level": 3, "on_commit": self._ended}
            )  # fmt: skip

    def _check(self, config: Mapping[str, str]) -> None:
        """By an admin client: a consumer would ask for its coordinator again until it times out."""
        group = self._job.spec.consumer_group or ""
        try:
            repeat(partial(_offsets_of, config, group))
        except KafkaException as error:
            known = error.args[0]
            message = known.str()
            if known.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                message += (
                    f"; this entry in spec.acls of its KafkaUser grants it: {{resource: {{type: "
                    f"group, name: {group}}}, operations: [read]}}"
                )
            raise NotReadyError(AT, message) from None

    def _is_of(self, number: int, topic: str) -> bool:
        source = self._job.spec.sources[number]
        if source.topic_pattern is not None:
            return re.fullmatch(source.topic_pattern, topic) is not None
        return topic in source.topics

    def _commit(self, consumer: Consumer, places: Places) -> None:
        offsets = [TopicPartition(topic, n, offset) for (topic, n), offset in places.items()]
        if offsets:
            consumer.commit(offsets=offsets, asynchronous=True)

    def _ended(self, error: Any, _: Any) -> None:
        """A commit that failed is repeated with the next batch."""
        problem = error.str() if error is not None else ""
        if problem and problem != self._problem:
            logger.warning("%s: the offsets of consumer group %s are not committed: %s",
                           self._job.key, self._job.spec.consumer_group, problem)  # fmt: skip
        self._problem = problem


def _offsets_of(config: Mapping[str, str], group: str) -> None:
    admin = AdminClient({**config, "log_level": 0})
    asked = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=TIMEOUT_S
    )
    for future in asked.values():
        future.result(TIMEOUT_S)
