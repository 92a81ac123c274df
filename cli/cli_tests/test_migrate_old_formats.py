"""The conversion that a broker advises when it refuses records from before Kafka 0.11."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from cli_tests.conftest import Odradek
from odradek_testkit.clients import consume, create_topic
from odradek_testkit.engines import RunningApacheKafka, RunningBroker, kafka_tool

# long: starts Apache Kafka twice
pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

TOPIC = "old"
TIME_MS = 1_400_000_000_000
COUNT = 50
NONE, GZIP = 0, 1


def old_segment(magic: int) -> bytes:
    """Half of the records alone, the others in a gzip wrapper, as kafka-python writes them."""
    plain, packed = (LegacyRecordBatchBuilder(magic, codec, 1 << 20) for codec in (NONE, GZIP))
    for n in range(COUNT):
        # Inner offsets are absolute in format 0, relative in format 1.
        half = n < COUNT // 2
        offset = n if half or magic == 0 else n - COUNT // 2
        (plain if half else packed).append(offset, TIME_MS + n, b"k%d" % n, b"v%d" % n)
    wrapper = bytearray(packed.build())
    wrapper[:8] = (COUNT - 1).to_bytes(8, "big")  # as a broker writes it: the last inner offset
    return bytes(plain.build()) + bytes(wrapper)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_topic_of_an_old_format_is_migrated(odradek: Odradek, tmp_path: Path, magic: int) -> None:
    """1. Apache Kafka gets a topic, is stopped, and the topic's segment becomes one of that format.
    2. It starts again with it. `odradek migrate` copies the topic to our broker.
    3. Every record is there, with its key and, in format 1, its time."""
    kafka = RunningApacheKafka(directory=tmp_path / "kafka")
    with kafka:
        create_topic(kafka, TOPIC, 1, {"retention.ms": "-1"})
    (segment,) = (kafka.data_dir / f"{TOPIC}-0").glob("*.log")
    segment.write_bytes(old_segment(magic))
    for index in (*segment.parent.glob("*.index"), *segment.parent.glob("*.timeindex")):
        index.unlink()
    dumped = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(segment)).stdout
    assert dumped.count(f"magic: {magic} ") == COUNT // 2 + 1
    (kafka.data_dir / ".kafka_cleanshutdown").unlink()
    with kafka, RunningBroker(directory=tmp_path / "ours") as ours:
        odradek("migrate", "--from", kafka.bootstrap, "--to", ours.bootstrap, "--topic", TOPIC,
                "--cut-over")  # fmt: skip
        found = consume(ours, TOPIC, COUNT)
    assert [(one.key(), one.value()) for one in found] == [
        (b"k%d" % n, b"v%d" % n) for n in range(COUNT)
    ]
    if magic == 1:
        assert [one.timestamp()[1] for one in found] == [TIME_MS + n for n in range(COUNT)]
