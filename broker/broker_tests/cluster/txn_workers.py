"""Programs that use transactions, each a process of its own, so that they can be killed.

    python -m broker_tests.cluster.txn_workers copy BOOTSTRAP ID GROUP IN OUT
        consume, transform, produce: every record of IN (value "n") as "n!" to OUT, exactly once
    python -m broker_tests.cluster.txn_workers bank BOOTSTRAP ID TOPIC PARTITION SEED
        transfers between ten accounts; each transaction writes two balances, some are aborted

Both run until they are killed. After an abortable error they abort; any other error ends the
program, and `Workers` starts it again.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from odradek_testkit.clients import offset_of, partition_of, value_of

ACCOUNTS = 10
OPENING_BALANCE = 100
TRANSFER_PAUSE_S = 0.02  # leaves CPU time to the readers on a small machine
BATCH = 500
TIMEOUT_S = 30.0
QUIET = {"log_level": 0}


def _producer(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 6000,
            "linger.ms": 1,
            **QUIET,
        }
    )
    _repeat(lambda: producer.init_transactions(TIMEOUT_S))
    return producer


def _repeat(step: Callable[[], object]) -> None:
    """As librdkafka documents: a call that fails with a retriable error is repeated."""
    while True:
        try:
            step()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def copy(bootstrap: str, transactional_id: str, group: str, source: str, target: str) -> None:
    producer = _producer(bootstrap, transactional_id)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            **QUIET,
        }
    )
    consumer.subscribe([source])
    while True:
        messages = [m for m in consumer.consume(BATCH, timeout=0.5) if m.error() is None]
        if not messages:
            continue
        ends: dict[int, int] = {}
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, value_of(message) + b"!", message.key())
                ends[partition_of(message)] = offset_of(message) + 1
            offsets = [TopicPartition(source, index, end) for index, end in ends.items()]
            metadata = consumer.consumer_group_metadata()
            send = partial(producer.send_offsets_to_transaction, offsets, metadata, TIMEOUT_S)
            _repeat(send)
            _repeat(lambda: producer.commit_transaction(TIMEOUT_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _repeat(lambda: producer.abort_transaction(TIMEOUT_S))
            _rewind(consumer)


def _rewind(consumer: Consumer) -> None:
    """Seeks the assigned partitions back to their committed offsets."""
    for known in consumer.committed(consumer.assignment(), timeout=TIMEOUT_S):
        consumer.seek(TopicPartition(known.topic, known.partition, max(known.offset, 0)))


def bank(bootstrap: str, transactional_id: str, topic: str, partition: str, seed: str) -> None:
    rng = random.Random(int(seed))
    index = int(partition)
    producer = _producer(bootstrap, transactional_id)
    balances = read_balances(bootstrap, topic, index)
    if not balances:
        balances = dict.fromkeys(range(ACCOUNTS), OPENING_BALANCE)
        producer.begin_transaction()
        for account, balance in balances.items():
            producer.produce(topic, str(balance), str(account), index)
        _repeat(lambda: producer.commit_transaction(TIMEOUT_S))
    while True:
        time.sleep(TRANSFER_PAUSE_S)
        giver, taker = rng.sample(range(ACCOUNTS), 2)
        amount = rng.randrange(1, 20)
        after = {giver: balances[giver] - amount, taker: balances[taker] + amount}
        try:
            producer.begin_transaction()
            for account, balance in after.items():
                producer.produce(topic, str(balance), str(account), index)
                producer.flush(TIMEOUT_S)  # so that a kill finds half of a transfer written
            if rng.random() < 0.2:
                _repeat(lambda: producer.abort_transaction(TIMEOUT_S))
                continue
            _repeat(lambda: producer.commit_transaction(TIMEOUT_S))
            balances.update(after)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _repeat(lambda: producer.abort_transaction(TIMEOUT_S))


def read_balances(bootstrap: str, topic: str, partition: int) -> dict[int, int]:
    """All that is committed in this partition by now: the last balance of each account."""
    found: dict[int, int] = {}
    for message in read_committed(bootstrap, topic, partition):
        found[int(message.key())] = int(message.value())
    return found


def read_committed(bootstrap: str, topic: str, partition: int, offset: int = 0) -> list[Any]:
    """From an offset to the last stable one, as it is when this is called."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    try:
        where = TopicPartition(topic, partition, offset)
        end = consumer.get_watermark_offsets(where, TIMEOUT_S)[1]
        consumer.assign([where])
        found: list[Message] = []
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{topic}-{partition}: nothing up to {end}"
            error = message.error()
            if error is None:
                if offset_of(message) >= end:
                    return found
                found.append(message)
            elif error.name() == "_PARTITION_EOF":
                if offset_of(message) >= end:
                    return found
            elif not error.retriable():
                raise KafkaException(error)
    finally:
        consumer.close()


class Workers:
    """Keeps a number of these programs running: one that ends is started again."""

    def __init__(self, directory: Path, *commands: list[str]) -> None:
        self._directory = directory
        self._commands = commands
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopping = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self.restarts = 0

    def __enter__(self) -> Self:
        self._processes = [self._spawn(number) for number in range(len(self._commands))]
        self._watching.start()
        return self

    def kill(self, number: int) -> None:
        """kill -9; the watcher starts it again."""
        self._processes[number].kill()

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        with open(self._directory / f"worker-{number}.out", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "broker_tests.cluster.txn_workers", *self._commands[number]],
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
            )

    def _watch(self) -> None:
        while not self._stopping.wait(0.05):
            for number, process in enumerate(self._processes):
                if process.poll() is not None:
                    self.restarts += 1
                    self._processes[number] = self._spawn(number)

    def log(self) -> str:
        return "".join(
            path.read_text(errors="replace")[-2000:]
            for path in sorted(self._directory.glob("worker-*.out"))
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._watching.join()
        for process in self._processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    {"copy": copy, "bank": bank}[sys.argv[1]](*sys.argv[2:])
