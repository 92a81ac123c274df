"""Consume, transform, produce, exactly once: every record of one topic to another.

Two workers in one group, each with a transactional id of its own; offsets are committed by the
transactions. A copy names the place of its original: "partition offset". Options: source, target,
protocol.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from odradek_e2e.chaos.history import Recorder, now
from odradek_e2e.chaos.workloads.bank import OK, Session
from odradek_e2e.chaos.workloads.job import Job, error_of, in_threads, place_of

GROUP = "copy"
BATCH_MAX = 200
WORKERS = 2
LIFE_S = (8.0, 25.0)  # of a consumer: members come and go


def run(job: Job) -> None:
    in_threads(job, [partial(_worker, job, i) for i in range(WORKERS)])


def group_settings(protocol: str) -> dict[str, Any]:
    if protocol == "consumer":
        return {"group.protocol": "consumer"}
    return {"group.protocol": "classic", "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000, "partition.assignment.strategy": "range"}  # fmt: skip


def _worker(job: Job, number: int) -> None:
    rng = job.rng(f"copy {number}")
    recorder = job.recorder("copy", f"worker-{number}")
    session = Session(job, f"copy-{number}", recorder)
    settings = group_settings(job.options["protocol"])
    while not job.over.is_set():
        consumer = Consumer(
            job.consumer(GROUP, **{"isolation.level": "read_committed", **settings})
        )
        consumer.subscribe([job.options["source"]])
        until = time.monotonic() + rng.uniform(*LIFE_S)
        try:
            while time.monotonic() < until and not job.over.is_set():
                if not _copy_some(job, consumer, session, recorder):
                    break
        finally:
            consumer.close()


def _copy_some(job: Job, consumer: Consumer, session: Session, recorder: Recorder) -> bool:
    """One transaction; False if a new consumer is needed, which starts at what is committed."""
    messages = [m for m in consumer.consume(BATCH_MAX, timeout=0.3) if _usable(m.error())]
    if not messages:
        return True
    ends: dict[int, int] = {}

    def copy(producer: Producer) -> None:
        for message in messages:
            partition, offset = place_of(message)
            producer.produce(
                job.options["target"], f"{partition} {offset}".encode(), partition=partition
            )
            ends[partition] = offset + 1
        offsets = [TopicPartition(job.options["source"], p, end) for p, end in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20.0)

    began = now()
    try:
        state, why = session.transact(copy, job.rng("copy"))
    except KafkaException as failed:
        state, why = "unknown", error_of(failed).name()
    recorder.note("txn", st=state, n=len(messages), t0=began, t1=now(), ends=ends, why=why)
    return state == OK


def _usable(error: KafkaError | None) -> bool:
    return error is None
