"""Transfers between accounts: two records in one transaction, "-x" for one and "+x" for the other.

Whatever happens, a read_committed reader finds both or none, so all amounts add up to 0. One in
eight transactions is aborted on purpose: its records must never be seen. A transaction is "unknown"
when the client could not learn its outcome. Options: topic, partitions, threads.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaException, Producer

from odradek_e2e.chaos.history import Recorder, now
from odradek_e2e.chaos.workloads.job import Job, error_of, in_threads

TIMEOUT_S = 40.0
ABORTED_ONE_IN = 8
FLUSHED_BEFORE_ABORT = 0.5  # of those, the records are on the brokers before
TRANSACTION_TIMEOUT_MS = 15_000
OK, ABORTED, UNKNOWN = "ok", "aborted", "unknown"


def run(job: Job) -> None:
    threads = range(int(job.options["threads"]))
    in_threads(job, [partial(_transfer, job, number) for number in threads])


def _transfer(job: Job, thread: int) -> None:
    rng = job.rng(f"bank {thread}")
    recorder = job.recorder("bank", f"teller-{thread}")
    session = Session(job, f"bank-{thread}", recorder)
    count = 0
    while not job.over.is_set():
        name = f"{thread}-{count}"
        count += 1
        one, other = rng.sample(range(100), 2)
        amount = rng.randint(1, 1_000)
        began = now()

        def write(producer: Producer, name: str = name, one: int = one, other: int = other,
                  amount: int = amount) -> None:  # fmt: skip
            for account, change in ((one, -amount), (other, amount)):
                producer.produce(
                    job.options["topic"], f"{name} {change}".encode(), str(account).encode(),
                    partition=account % int(job.options["partitions"]),
                )  # fmt: skip

        state, why = session.transact(write, rng, may_abort=True)
        recorder.note("txn", x=name, st=state, t0=began, t1=now(), **({"why": why} if why else {}))
        if state == UNKNOWN:
            time.sleep(0.2)


class Session:
    """A transactional producer, replaced when its client reports a fatal error."""

    def __init__(self, job: Job, transactional_id: str, recorder: Recorder) -> None:
        self._job, self._id, self._recorder = job, transactional_id, recorder
        self._producer: Producer | None = None

    def producer(self) -> Producer:
        """A producer that is initialised; waits for the coordinator as long as it takes."""
        while self._producer is None:
            producer = Producer(
                self._job.producer(**{
                    "transactional.id": self._id,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "linger.ms": 0,
                })
            )  # fmt: skip
            try:
                producer.init_transactions(TIMEOUT_S)
                self._producer = producer
            except KafkaException as failed:
                self._recorder.note("no-init", why=error_of(failed).name())
                if self._job.over.wait(0.5):
                    raise SystemExit(0) from None
        return self._producer

    def transact(
        self,
        write: Callable[[Producer], None],
        rng: random.Random,
        *,
        may_abort: bool = False,
    ) -> tuple[str, str]:
        """The outcome of one transaction, and the error that explains it."""
        producer = self.producer()
        committing = False
        try:
            producer.begin_transaction()
            write(producer)
            if may_abort and rng.randrange(ABORTED_ONE_IN) == 0:
                if rng.random() < FLUSHED_BEFORE_ABORT:
                    producer.flush(2.0)
                self._abort(producer)
                return ABORTED, ""
            committing = True
            self._commit(producer)
            return OK, ""
        except KafkaException as failed:
            return self._after(failed, producer, committing=committing)

    def _commit(self, producer: Producer) -> None:
        """A commit that timed out is asked for again, as librdkafka's manual says."""
        give_up = time.monotonic() + TIMEOUT_S
        while True:
            try:
                producer.commit_transaction(TIMEOUT_S / 4)
                return
            except KafkaException as failed:
                if not error_of(failed).retriable() or time.monotonic() > give_up:
                    raise

    def _abort(self, producer: Producer) -> None:
        give_up = time.monotonic() + TIMEOUT_S
        while True:
            try:
                producer.abort_transaction(TIMEOUT_S / 4)
                return
            except KafkaException as failed:
                if not error_of(failed).retriable() or time.monotonic() > give_up:
                    raise

    def _after(
        self, failed: KafkaException, producer: Producer, *, committing: bool
    ) -> tuple[str, str]:
        error = error_of(failed)
        if error.txn_requires_abort() and not error.fatal():
            try:
                self._abort(producer)
                # After a commit that failed, the decision of the coordinator is unknown.
                return (UNKNOWN if committing else ABORTED), error.name()
            except KafkaException as again:
                error = error_of(again)
        self._producer = None
        return UNKNOWN, error.name()
