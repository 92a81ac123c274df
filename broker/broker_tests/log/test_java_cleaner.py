"""Compaction next to Apache Kafka's own: its tools read our files, and its cleaner agrees."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker_tests.log.compaction import (
    IDEMPOTENT,
    TRANSACTIONAL,
    CompactedLog,
    Direct,
    unhurried,
)
from broker_tests.log.support import batches_of
from broker_tests.log.test_cleaner_run import history
from broker_tests.log.test_java_format import java_dump, our_dump, segment_files
from odradek_broker.log.cleanable import find_cleanable
from odradek_broker.log.cleaner_run import CleanerRun, CleaningLimits
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.manager import LogManager
from odradek_broker.log.txn_index import parse as parse_txn_index
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.disk import RealDisk
from odradek_protocol.ids import TopicPartition
from odradek_protocol.records.record_batch import DELETE_HORIZON_BIT, read_header
from odradek_protocol.records.records import read_records
from odradek_testkit.engines import RunningApacheKafka

pytestmark = pytest.mark.java

TOPIC = "compacted"
WAIT_SECONDS = 60.0
SEGMENT_BYTES = 1 << 20  # the least that Kafka takes
EXPECTED_COMPLAINT = re.compile(
    "^Non-consecutive offsets|^  -?[0-9]+ is followed by [0-9]+$"
    "|^Found timestamp mismatch|log timestamp: -1$"
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_kafkas_dump_tool_reads_compacted_files(tmp_path: Path) -> None:
    """All kinds of producers and codecs; delete horizons, empty batches and gaps in it."""
    log = CompactedLog(RealDisk(), directory=str(tmp_path))
    history(log, Random(12), 120)
    log.roll()
    log.clean()
    history(log, Random(13), 60)
    for producer in TRANSACTIONAL:
        log.end_transaction(producer, commits=False)
    log.write([("a", "soon empty")], producer=IDEMPOTENT[0])
    log.write([("a", "1"), ("b", "1")])
    log.roll()
    log.clean()
    log.verify()
    log.close()
    headers = [read_header(batch) for batch in all_batches(Path(log.log.dir))]
    assert any(header.attributes & DELETE_HORIZON_BIT for header in headers)
    assert any(header.record_count == 0 for header in headers)
    assert any(0 < header.record_count <= header.last_offset_delta for header in headers)
    assert_dump_reads(Path(log.log.dir))


@pytest.mark.long  # waits for two rounds of Apache Kafka's cleaner
@pytest.mark.timeout(240)
def test_our_cleaner_leaves_what_kafkas_cleaner_leaves(tmp_path: Path) -> None:
    """1. Apache Kafka, with its cleaner off, gets a compacted topic with records of every kind.
    2. Our cleaner cleans a copy of its directory.
    3. Kafka starts again with its cleaner on, and cleans the original.
    4. Both directories have the same segments with the same batches and records.
    5. All once more, now that the tombstones and markers of the first round may go.
    """
    original = tmp_path / "kafka"
    for number in range(2):
        kafka = RunningApacheKafka({"log.cleaner.enable": "false"}, directory=original)
        with kafka:
            if number == 0:
                create_topic(kafka.bootstrap)
            fill(kafka.bootstrap, Random(number))
        ours = tmp_path / f"ours-{number}"
        shutil.copytree(kafka.data_dir, ours)
        clean_with_ours(ours, kafka.cluster_id)

        again = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "100"}
        with RunningApacheKafka(again, directory=original) as kafka:
            wait_until(lambda: checkpoint(kafka.data_dir) == checkpoint(ours))  # noqa: B023
        left, right = ours / f"{TOPIC}-0", kafka.data_dir / f"{TOPIC}-0"
        assert names(left) == names(right)
        our_batches, their_batches = list(all_batches(left)), list(all_batches(right))
        assert list(map(comparable, our_batches)) == list(map(comparable, their_batches))
        assert aborted(left) == aborted(right)
        assert_dump_reads(left)


def assert_dump_reads(directory: Path) -> None:
    """Kafka's tool prints the same as ours for each file, and reports no error.

    It does report what compaction always causes: gaps between offsets, and timestamps of batches
    without records.
    """
    files = segment_files(directory)
    java, complaints = java_dump(files, "--deep-iteration", "--print-data-log")
    for path in files:
        assert our_dump(path) == java[str(path)], path
    for line in complaints.splitlines():
        assert EXPECTED_COMPLAINT.search(line), line


def create_topic(bootstrap: str) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1000",
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 1, config=config)]).values():
        future.result()


def fill(bootstrap: str, rng: Random) -> None:
    """About 5 MB: all codecs, tombstones, transactions that are committed and aborted."""
    for codec in CODECS:
        plain = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5}
        )
        idempotent = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "linger.ms": 5,
                "enable.idempotence": True,
            }
        )
        for producer in (plain, idempotent):
            send(producer, rng, 250)
        transactional = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "transactional.id": f"tx-{codec}",
            }
        )
        transactional.init_transactions(30)
        for commit in (False, True, rng.random() < 0.5):
            transactional.begin_transaction()
            send(transactional, rng, 40)
            if commit:
                transactional.commit_transaction(30)
            else:
                transactional.abort_transaction(30)


def send(producer: Producer, rng: Random, number: int) -> None:
    for _ in range(number):
        key = b"key-%d" % rng.randrange(400)
        value = None if rng.random() < 0.1 else rng.randbytes(rng.randrange(1500)).hex()
        producer.produce(TOPIC, value, key, headers=[("h", b"1")])
    assert producer.flush(30) == 0


def clean_with_ours(directory: Path, cluster_id: str) -> None:
    config = LogConfig(
        cleanup_compact=True,
        cleanup_delete=False,
        segment_bytes=SEGMENT_BYTES,
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=1000,
    )
    clock = SystemClock()
    settings = LogSettings(cluster_id=cluster_id, node_id=1)
    manager = LogManager([str(directory)], RealDisk(), clock, settings)
    manager.load(config_of=lambda _topic_partition: config)
    log = manager.logs[TopicPartition(TOPIC, 0)]
    log.high_watermark = log.log_end_offset
    cleanable = find_cleanable(log, clock.now_ms())
    assert cleanable.is_due
    CleanerRun(
        cleanable, CleaningLimits(1 << 20, 0.9, 256 * 1024), Direct(), unhurried, clock.now_ms()
    ).run()
    manager.close()


def wait_until(done: Callable[[], bool]) -> None:
    """Polls: a server does not announce that it has written a file."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def checkpoint(directory: Path) -> str:
    path = directory / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return "".join(line for line in lines if line.startswith(TOPIC))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.log"))


def all_batches(directory: Path) -> Iterator[bytes]:
    for name in names(directory):
        yield from batches_of((directory / name).read_bytes())


def comparable(batch: bytes) -> tuple[Any, ...]:
    """A batch without the fields that may differ: its compression and its delete horizon."""
    header = read_header(batch)
    return (
        header.replace(batch_length=0, crc=0, base_timestamp=0),
        list(read_records(batch)),
    )


def aborted(directory: Path) -> list[Any]:
    return [
        parse_txn_index(path.read_bytes())
        for path in sorted(directory.glob("*.txnindex"))
        if path.stat().st_size
    ]
