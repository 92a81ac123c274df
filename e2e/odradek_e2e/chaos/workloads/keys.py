"""A key-value model on a compacted topic: growing versions of each key, and tombstones.

One producer writes all keys, so versions have an order. Segments are small and the cleaner runs
all the time. Options: topic, partitions, keys, per_second.
"""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from odradek_e2e.chaos.history import Recorder, now
from odradek_e2e.chaos.workloads.job import Job, place_of

TOMBSTONE_ONE_IN = 10
IN_FLIGHT_MAX = 2_000
FLUSH_S = 120.0
PADDING = "." * 80


def run(job: Job) -> None:
    rng = job.rng("keys")
    recorder = job.recorder("keys", "writer")
    partitions, keys = int(job.options["partitions"]), int(job.options["keys"])
    producer = Producer(job.producer(**{"linger.ms": 5}))
    waiting = [0]
    version, began = 0, time.monotonic()
    while not job.over.is_set():
        due = int((time.monotonic() - began) * job.options["per_second"]) - version
        for _ in range(min(due, 500)):
            if waiting[0] >= IN_FLIGHT_MAX:
                break
            version += 1
            key = rng.randrange(keys)
            deleted = rng.randrange(TOMBSTONE_ONE_IN) == 0
            waiting[0] += 1
            recorder.note("put", k=key, v=version, d=deleted)
            producer.produce(
                job.options["topic"], None if deleted else f"{version} {PADDING}".encode(),
                f"{key}".encode(), partition=key % partitions, headers=[("v", b"%d" % version)],
                on_delivery=partial(_delivered, recorder, waiting, key, version),
            )  # fmt: skip
        producer.poll(0.01)
    producer.flush(FLUSH_S)


def _delivered(
    recorder: Recorder,
    waiting: list[int],
    key: int,
    version: int,
    error: KafkaError | None,
    message: Message,
) -> None:
    waiting[0] -= 1
    if error is None:
        partition, offset = place_of(message)
        recorder.note("acked", k=key, v=version, p=partition, o=offset, t=now())
    else:
        recorder.note("unknown", k=key, v=version, why=error.name())
