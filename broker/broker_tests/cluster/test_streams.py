"""Kafka Streams, unmodified, on three brokers: words counted exactly once, through kill -9, with
the classic group protocol and that of streams groups (KIP-1071)."""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Producer

from broker_tests.cluster.conftest import StartCluster
from broker_tests.cluster.txn_workers import read_committed
from odradek_testkit.cluster import Cluster
from odradek_testkit.engines import JVM_FLAGS, TOOLS_DIR, streams_jars

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
    # A killed instance is noticed after this long.
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
}
CONFIG = {"min.insync.replicas": "2"}
PARTITIONS = 2
LINES = 5_000
WORDS = ("spool", "thread", "star", "stairs", "attic", "leaves", "lungs", "laughter")


class WordCount:
    """The program of kafka-tools/streams as a process; its words go to a file."""

    def __init__(
        self, cluster: Cluster, source: str, target: str, directory: Path, *settings: str
    ) -> None:
        directory.mkdir(exist_ok=True)
        classes = directory / "classes"
        jars = f"{streams_jars()}/*"
        program = TOOLS_DIR / "streams" / "WordCount.java"
        subprocess.run(["javac", "-cp", jars, "-d", classes, program], check=True, timeout=120)
        logging = f"-Dlog4j2.configurationFile={TOOLS_DIR / 'log4j2.properties'}"
        self._command = ["java", *JVM_FLAGS, logging, "-cp", f"{classes}:{jars}", "WordCount"]
        self._command += [cluster.bootstrap, source, target, str(directory / "state")]
        self._command += settings
        self._log_path = directory / "word-count.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        with open(self._log_path, "a") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None:
            error.add_note(self._log_path.read_text()[-4000:])


def counted(cluster: Cluster, topic: str) -> dict[str, list[int]]:
    """The numbers that each word got, in the order in which they became visible."""
    found: dict[str, list[int]] = defaultdict(list)
    for partition in range(PARTITIONS):
        for message in read_committed(cluster.bootstrap, topic, partition, 0):
            found[message.key().decode()].append(int(message.value()))
    return found


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_every_word_is_counted_once(
    start_cluster: StartCluster, topic: str, tmp_path: Path, protocol: str
) -> None:
    """The program is killed, then a broker; the n-th "star" of the input is star=n, once."""
    cluster = start_cluster(3, SETTINGS)
    source, target = f"{topic}-lines", f"{topic}-counts"
    for name in (source, target):
        cluster.create_topic(name, partitions=PARTITIONS, config=CONFIG)
    rng = Random(4)
    lines = [" ".join(rng.choices(WORDS, k=3)) for _ in range(LINES)]
    expected = Counter(word for line in lines for word in line.split())
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number, line in enumerate(lines):
        producer.produce(source, line, str(number))
    assert producer.flush(60) == 0

    def progress() -> int:
        return sum(map(len, counted(cluster, target).values()))

    chosen = f"group.protocol={protocol}"
    with WordCount(cluster, source, target, tmp_path, chosen) as program:
        cluster.wait_until(lambda: progress() > 0, "the first words counted", 120)
        program.kill()
        program.start()
        cluster.kill(2)
        cluster.start([2])
        total = expected.total()
        cluster.wait_until(lambda: progress() >= total, f"{total} words counted", 240)
        program.kill()  # a record that is counted twice would be written by the next instance
        before = progress()
        program.start()
        producer.produce(source, "end", "end")
        assert producer.flush(60) == 0
        cluster.wait_until(lambda: progress() > before, "the last word counted", 120)
    expected["end"] = 1
    found = counted(cluster, target)
    assert found == {word: list(range(1, n + 1)) for word, n in expected.items()}
