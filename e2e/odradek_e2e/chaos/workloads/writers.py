"""Idempotent producers: each numbers its records per partition, 0, 1, 2, …

Options: topic, partitions, per_second, first_writer, writers, settings, size. A producer whose
client reports a fatal error is replaced by a new one, a new writer with numbers of its own. What
is about to be sent is announced first ("sent"), so that a phantom can be told from a record.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from odradek_e2e.chaos.history import Recorder
from odradek_e2e.chaos.workloads.job import HEAD, Job, in_threads, place_of, value_of
from odradek_e2e.chaos.workloads.runs import Runs

IN_FLIGHT_MAX = 20_000
ANNOUNCED = 10_000  # numbers at once
FLUSH_S = 120.0
WRITERS_MAX = 1_000  # writer 3's replacements are 1003, 2003, …


def run(job: Job) -> None:
    first = int(job.options.get("first_writer", 0))
    loops = [partial(_replaced, job, first + i) for i in range(int(job.options["writers"]))]
    in_threads(job, loops)


def _replaced(job: Job, writer: int) -> None:
    recorder = job.recorder(job.options["subject"], f"writer-{writer}")
    while not job.over.is_set():
        _Writer(job, recorder, writer).run()
        writer += WRITERS_MAX


class _Writer:
    """One producer, until the job is over or it reports a fatal error."""

    def __init__(self, job: Job, recorder: Recorder, number: int) -> None:
        options = job.options
        self._job, self._recorder, self._number = job, recorder, number
        self._topic, self._partitions = options["topic"], int(options["partitions"])
        self._per_second = options["per_second"] / options["writers"]
        self._filler = bytes(int(options.get("size", 60)))
        settings: dict[str, Any] = {"linger.ms": 5, **options.get("settings", {})}
        self._producer = Producer(job.producer(**settings))
        self._next = [0] * self._partitions
        self._announced = [0] * self._partitions
        self._in_flight = 0
        self._fatal = ""
        self._acked = Runs(recorder, "acked")

    def run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._job.over.is_set() and not self._fatal:
            due = int((time.monotonic() - began) * self._per_second) - sent
            if due > self._per_second:  # after an outage go on at the same rate
                began, sent, due = time.monotonic(), 0, 1
            for _ in range(min(due, IN_FLIGHT_MAX - self._in_flight)):
                # Runs of 20 to a partition, as a sticky partitioner makes them.
                self._send((sent // 20) % self._partitions)
                sent += 1
            self._producer.poll(0.01)
            self._acked.flush()
        self._end()

    def _send(self, partition: int) -> None:
        number = self._next[partition]
        if number >= self._announced[partition]:
            self._announced[partition] += ANNOUNCED
            self._recorder.note("sent", w=self._number, p=partition, n=self._announced[partition])
        value = HEAD.pack(self._number, number) + self._filler
        try:
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._delivered
            )
        except BufferError:
            return
        self._next[partition] += 1
        self._in_flight += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._in_flight -= 1
        writer, number = HEAD.unpack_from(value_of(message))
        partition, offset = place_of(message)
        if error is None:
            self._acked.add(writer, partition, number, offset)
            return
        self._recorder.note("unknown", w=writer, p=partition, s=number, n=1, why=error.name())
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = error.str()

    def _end(self) -> None:
        left = self._producer.flush(0.0 if self._fatal else FLUSH_S)
        self._acked.flush()
        for partition, number in enumerate(self._next):
            self._recorder.note("closed", w=self._number, p=partition, n=number)
        if self._fatal:
            self._recorder.note("fatal", w=self._number, why=self._fatal)
            self._producer.purge()
        elif left:
            self._recorder.note("unanswered", w=self._number, n=left)
