"""Readers that follow a topic of writers.py, and the final read of everything.

Options of `readers`: subject, topic, partitions, isolation. Reader 0 reads from leaders, reader 1
says that it is in rack b, so that brokers send it to a follower (KIP-392).
Options of `final`: reads, a list of (subject, topic, partitions, isolation, records|raw).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from odradek_e2e.chaos.history import Recorder
from odradek_e2e.chaos.workloads.job import HEAD, Job, in_threads, place_of, value_of
from odradek_e2e.chaos.workloads.runs import Runs

FINAL = "final"
FINAL_LIMIT_S = 150.0
# A reader that asks for an offset that is no longer there must not silently skip to another one.
NO_RESET = {"auto.offset.reset": "error"}


def run(job: Job) -> None:
    in_threads(job, [partial(_follow, job, 0, ""), partial(_follow, job, 1, "b")])


def _follow(job: Job, number: int, rack: str) -> None:
    options = job.options
    who = f"reader-{number}"
    recorder = job.recorder(options["subject"], who)
    settings: dict[str, Any] = {"isolation.level": options["isolation"]}
    if options.get("reset", "error") == "error":
        settings |= NO_RESET
    if rack:
        settings["client.rack"] = rack
    consumer = Consumer(job.consumer("assigned", **settings))
    partitions = range(int(options["partitions"]))
    consumer.assign([TopicPartition(options["topic"], p, OFFSET_BEGINNING) for p in partitions])
    runs = Runs(recorder, "read", r=who)
    while not job.over.is_set():
        for message in consumer.consume(2_000, timeout=0.5):
            _take(message, runs, recorder, who)
        runs.flush()
    consumer.close()


def _take(message: Message, runs: Runs, recorder: Recorder, who: str) -> None:
    error = message.error()
    if error is None:
        writer, number = HEAD.unpack_from(value_of(message))
        runs.add(writer, *_order(message, number))
    elif error.code() == KafkaError._AUTO_OFFSET_RESET:
        recorder.note("out-of-range", r=who, p=message.partition(), why=error.str())


def _order(message: Message, number: int) -> tuple[int, int, int]:
    partition, offset = place_of(message)
    return partition, number, offset


def final(job: Job) -> None:
    """Ends by itself; what could not be read in time is missing, and the checker says so."""
    for subject, topic, partitions, isolation, form in job.options["reads"]:
        recorder = job.recorder(subject, FINAL)
        runs = [Runs(recorder, "read", r=FINAL)]
        if topic == job.options["copied"]:
            copies = job.recorder("copy", "originals")
            runs.append(Runs(copies, "original"))
            _note_committed(job, copies, topic, int(partitions))
        what = (topic, int(partitions), isolation)
        _read_all(job, recorder, what, [] if form == "raw" else runs)
        recorder.close()


def _note_committed(job: Job, recorder: Recorder, topic: str, partitions: int) -> None:
    """Where the group of copying.py has got to; none of its transactions is open any more."""
    consumer = Consumer(job.consumer("copy"))
    asked = [TopicPartition(topic, p) for p in range(partitions)]
    for found in consumer.committed(asked, timeout=FINAL_LIMIT_S):
        recorder.note("committed", p=found.partition, o=max(found.offset, -1))
    consumer.close()


def _read_all(
    job: Job, recorder: Recorder, what: tuple[str, int, str], all_runs: Sequence[Runs]
) -> None:
    """Without runs, keys and values are noted as they are."""
    topic, partitions, isolation = what
    consumer = Consumer(
        job.consumer("final", **{"isolation.level": isolation, "enable.partition.eof": True})
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    ended: dict[int, int] = {}
    give_up = time.monotonic() + FINAL_LIMIT_S
    while len(ended) < partitions and time.monotonic() < give_up:
        for message in consumer.consume(10_000, timeout=0.5):
            error = message.error()
            if error is None and not all_runs:
                _note_raw(recorder, message)
            elif error is None:
                writer, number = HEAD.unpack_from(value_of(message))
                for runs in all_runs:
                    runs.add(writer, *_order(message, number))
            elif error.code() == KafkaError._PARTITION_EOF:
                partition, offset = place_of(message)
                ended[partition] = offset
    for runs in all_runs:
        runs.flush()
    for partition in range(partitions):
        recorder.note("end", r=FINAL, p=partition, o=ended.get(partition, -1))
    consumer.close()


def _note_raw(recorder: Recorder, message: Message) -> None:
    key, value = message.key(), message.value()
    partition, offset = place_of(message)
    recorder.note(
        "found", r=FINAL, p=partition, o=offset,
        k=key.decode() if isinstance(key, bytes) else None,
        v=value.decode() if isinstance(value, bytes) else None,
    )  # fmt: skip
