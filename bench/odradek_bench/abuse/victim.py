"""The victim: writes records and measures how long each acknowledgement takes.

    python -m odradek_bench.abuse.victim BOOTSTRAP TOPIC PARTITIONS

Partitions are written in turn, RATE_PER_S records a second, acks=all. Each line on stdin ends a
period, which is answered by one line of JSON (see `Period`). The end of stdin ends the process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field

from confluent_kafka import KafkaError, Message, Producer

from odradek_bench.stats import quantile

RATE_PER_S = 100
# Longer than any period: a late record counts as late and not as an error of this client.
DELIVERY_TIMEOUT_MS = 120_000


@dataclass
class Period:
    """The measurements between two lines of stdin."""

    seconds: float = 0.0
    acked: int = 0
    unacked: int = 0  # written, and neither acknowledged nor refused yet
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    longest_silence_ms: float = 0.0  # the longest time in which one partition acknowledged nothing
    errors: dict[str, int] = field(default_factory=dict)


class Victim:
    """A well-behaved client; its latencies are measured during the abuse."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "log_level": 0,
            },
            logger=None,
        )
        self._lock = threading.Lock()
        self._open: set[tuple[int, float]] = set()
        self._begin()

    def _begin(self) -> None:
        now = time.monotonic()
        self._began = now
        self._latencies: list[float] = []
        self._errors: Counter[str] = Counter()
        self._acked_at = [now] * self._partitions
        self._silence = 0.0

    def run(self) -> None:
        number = 0
        due = time.monotonic()
        while True:
            self._write(number % self._partitions, number)
            number += 1
            due += 1 / RATE_PER_S
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)  # returns as soon as something was delivered

    def _write(self, partition: int, number: int) -> None:
        written = (number, time.monotonic())

        def delivered(error: KafkaError | None, _: Message) -> None:
            self._delivered(partition, written, error)

        with self._lock:
            self._open.add(written)
        try:
            self._producer.produce(self._topic, b"x" * 100, partition=partition, callback=delivered)
        except BufferError:
            with self._lock:
                self._open.discard(written)
                self._errors["queue full"] += 1

    def _delivered(
        self, partition: int, written: tuple[int, float], error: KafkaError | None
    ) -> None:
        now = time.monotonic()
        with self._lock:
            self._open.discard(written)
            if error is not None:
                self._errors[error.name()] += 1
                return
            self._latencies.append((now - written[1]) * 1000)
            self._silence = max(self._silence, now - self._acked_at[partition])
            self._acked_at[partition] = now

    def end_period(self) -> Period:
        with self._lock:
            now = time.monotonic()
            # A record that still waits counts with the time that it has waited so far.
            waiting = [(now - written) * 1000 for _, written in self._open]
            latencies = self._latencies + waiting or [0.0]
            silence = max(self._silence, now - min(self._acked_at))
            period = Period(
                seconds=round(now - self._began, 2),
                acked=len(self._latencies),
                unacked=len(self._open),
                p50_ms=round(quantile(latencies, 0.5), 1),
                p99_ms=round(quantile(latencies, 0.99), 1),
                longest_silence_ms=round(silence * 1000),
                errors=dict(self._errors),
            )
            self._begin()
        return period


class VictimProcess:
    """The victim as the scenarios see it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "odradek_bench.abuse.victim", bootstrap, topic, str(partitions)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def end_period(self) -> Period:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Period(**json.loads(self._process.stdout.readline()))

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    bootstrap, topic, partitions = sys.argv[1:]
    victim = Victim(bootstrap, topic, int(partitions))
    threading.Thread(target=victim.run, daemon=True).start()
    for _ in sys.stdin:
        print(json.dumps(asdict(victim.end_period())), flush=True)
    os._exit(0)  # do not wait for records that are not acknowledged any more


if __name__ == "__main__":
    main()
