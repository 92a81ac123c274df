"""Transactions of up to four operations: append a value to a list, or read what is new in one.

A list is a partition, a value is used once. Each thread has a transactional producer and a
read_committed consumer of its own, which is assigned all lists. Options: topic, partitions,
threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from odradek_e2e.chaos.history import now
from odradek_e2e.chaos.workloads.bank import Session
from odradek_e2e.chaos.workloads.job import Job, in_threads, place_of, value_of

OPERATIONS_MAX = 4
READ_S = 0.05
Operation = list[Any]


def run(job: Job) -> None:
    in_threads(job, [partial(_client, job, i) for i in range(int(job.options["threads"]))])


def _client(job: Job, thread: int) -> None:
    rng = job.rng(f"lists {thread}")
    recorder = job.recorder("lists", f"client-{thread}")
    session = Session(job, f"lists-{thread}", recorder)
    topic, keys = job.options["topic"], int(job.options["partitions"])
    consumer = Consumer(
        job.consumer("lists", **{"isolation.level": "read_committed", "auto.offset.reset": "error"})
    )
    consumer.assign([TopicPartition(topic, key, OFFSET_BEGINNING) for key in range(keys)])
    count = 0
    while not job.over.is_set():
        name = f"{thread}-{count}"
        count += 1
        done: list[Operation] = []
        kinds = [rng.choice("aar") for _ in range(rng.randint(1, OPERATIONS_MAX))]
        chosen = [rng.randrange(keys) for _ in kinds]

        def operate(producer: Producer, name: str = name, done: list[Operation] = done,
                    kinds: list[str] = kinds, chosen: list[int] = chosen) -> None:  # fmt: skip
            for index, (kind, key) in enumerate(zip(kinds, chosen, strict=True)):
                if kind == "a":
                    value = f"{name}.{index}"
                    done.append(["a", key, value])  # noted before: it may arrive in any case
                    producer.produce(topic, value.encode(), partition=key)
                else:
                    done.extend(_read(consumer))

        began = now()
        state, why = session.transact(operate, rng, may_abort=True)
        more = {"why": why} if why else {}
        recorder.note("txn", x=name, st=state, t0=began, t1=now(), ops=done, **more)
    consumer.close()


def _read(consumer: Consumer) -> list[Operation]:
    """The new values of all lists, one operation per list."""
    found: dict[int, list[list[Any]]] = {}
    for message in consumer.consume(1_000, timeout=READ_S):
        if message.error() is None:
            partition, offset = place_of(message)
            found.setdefault(partition, []).append([offset, value_of(message).decode()])
    return [["r", key, values] for key, values in found.items()]
