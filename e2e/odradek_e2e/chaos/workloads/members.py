"""Consumers of two groups, one of each protocol, that commit offsets and come and go.

Each commit is synchronous, and noted before and after. When a member is given partitions, it asks
for the committed offsets: a new owner must never begin before what was confirmed. Options: topic,
partitions.
"""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import Consumer, KafkaException, TopicPartition

from odradek_e2e.chaos.history import Recorder, now
from odradek_e2e.chaos.workloads.copying import group_settings
from odradek_e2e.chaos.workloads.job import Job, error_of, in_threads, place_of

LIFE_S = (5.0, 20.0)
COMMIT_S = 0.5
MEMBERS = 2
GROUPS = ("classic", "consumer")


def run(job: Job) -> None:
    in_threads(job, [partial(_member, job, group, i) for group in GROUPS for i in range(MEMBERS)])


def _member(job: Job, group: str, number: int) -> None:
    rng = job.rng(f"member {group} {number}")
    recorder = job.recorder("groups", f"{group}-{number}")
    life = 0
    while not job.over.is_set():
        life += 1
        consumer = Consumer(job.consumer(f"g-{group}", **group_settings(group)))
        member = _Member(consumer, recorder, group, f"{group}-{number}-{life}")
        consumer.subscribe([job.options["topic"]], on_assign=member.assigned)
        until = time.monotonic() + rng.uniform(*LIFE_S)
        try:
            while time.monotonic() < until and not job.over.is_set():
                member.step()
        finally:
            consumer.close()


class _Member:
    """One life of a member."""

    def __init__(self, consumer: Consumer, recorder: Recorder, group: str, name: str) -> None:
        self._consumer, self._recorder = consumer, recorder
        self._group, self._name = group, name
        self._next: dict[int, int] = {}
        self._topic = ""
        self._committed_at = time.monotonic()

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        began = now()
        self._next.clear()
        try:
            found = consumer.committed(partitions, timeout=8.0)
        except KafkaException:
            return
        offsets = {tp.partition: tp.offset for tp in found if tp.error is None}
        self._recorder.note("fetched", g=self._group, m=self._name, t0=began, t1=now(),
                            offsets=offsets)  # fmt: skip

    def step(self) -> None:
        messages = self._consumer.consume(500, timeout=0.2)
        for message in messages:
            if message.error() is None:
                partition, offset = place_of(message)
                self._next[partition] = offset + 1
                self._topic = message.topic() or ""
        if self._next and time.monotonic() - self._committed_at > COMMIT_S:
            self._commit()
            self._committed_at = time.monotonic()

    def _commit(self) -> None:
        offsets = dict(self._next)
        asked = [TopicPartition(self._topic, p, offset) for p, offset in offsets.items()]
        began = now()
        try:
            answers = self._consumer.commit(offsets=asked, asynchronous=False) or []
            failed = {tp.partition: tp.error.name() for tp in answers if tp.error}
            why = ""
        except KafkaException as error:
            failed, why = dict.fromkeys(offsets, "failed"), error_of(error).name()
            self._next.clear()
        for partition, offset in offsets.items():
            state = "unknown" if partition in failed else "ok"
            self._recorder.note("commit", g=self._group, m=self._name, p=partition, o=offset,
                                st=state, t0=began, t1=now(), why=why)  # fmt: skip
