"""The Java client's data path, through Apache Kafka's own scripts.

The console consumer is given a partition: without one it joins a group (test_java_groups.py).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from broker_tests.conftest import StartBroker
from odradek_testkit.clients import CODECS, consume, create_topic, numbered, produce
from odradek_testkit.connecting import for_java
from odradek_testkit.engines import Server, kafka_tool

pytestmark = pytest.mark.java

TOOLS = "org.apache.kafka.tools"


def read_console(broker: Server, topic: str, count: int, *args: str, offset: str = "0") -> str:
    done = kafka_tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *for_java(broker), "--topic", topic,
        "--partition", "0", "--offset", offset, "--max-messages", str(count),
        "--timeout-ms", "20000", *args,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_and_consumer(broker: Server, topic: str, codec: str) -> None:
    create_topic(broker, topic)
    lines = "".join(f"key-{i}\tvalue-{i}\n" for i in range(500))
    kafka_tool(
        f"{TOOLS}.ConsoleProducer", *for_java(broker), "--topic", topic,
        "--compression-codec", codec, "--reader-property", "parse.key=true",
        stdin=lines,
    )  # fmt: skip
    assert read_console(broker, topic, 500, "--formatter-property", "print.key=true") == lines


def test_console_consumer_prints_headers_and_timestamps(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    kafka_tool(
        f"{TOOLS}.ConsoleProducer", *for_java(broker), "--topic", topic,
        "--reader-property", "parse.headers=true", "--reader-property", "parse.key=true",
        "--reader-property", "null.marker=NULL",
        stdin="a:1,b:2\tk\tv\na:3\tgone\tNULL\n",
    )  # fmt: skip
    out = read_console(
        broker, topic, 2, "--formatter-property", "print.headers=true",
        "--formatter-property", "print.timestamp=true", "--formatter-property", "print.key=true",
        "--formatter-property", "print.offset=true", "--formatter-property", "null.literal=NULL",
    )  # fmt: skip
    first, second = out.splitlines()
    assert re.fullmatch(r"CreateTime:\d{13}\tOffset:0\ta:1,b:2\tk\tv", first)
    assert re.fullmatch(r"CreateTime:\d{13}\tOffset:1\ta:3\tgone\tNULL", second)


def test_producer_perf_and_console_from_the_end(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    done = kafka_tool(
        f"{TOOLS}.ProducerPerformance", "--topic", topic, "--num-records", "20000",
        "--record-size", "200", "--throughput", "-1", *for_java(broker),
        "--command-property", "acks=all", "compression.type=lz4",
    )  # fmt: skip
    assert "20000 records sent" in done.stdout
    assert [m.offset() for m in consume(broker, topic, 20_000)] == list(range(20_000))


def test_verifiable_producer(broker: Server, topic: str) -> None:
    create_topic(broker, topic)
    done = kafka_tool(
        f"{TOOLS}.VerifiableProducer", *for_java(broker), "--topic", topic,
        "--max-messages", "1000", "--acks", "-1",
        own_jvm=True,  # it closes its producer in a shutdown hook of the JVM
    )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines()]
    acked = [e["offset"] for e in events if e["name"] == "producer_send_success"]
    assert acked == list(range(1_000))
    summary = events[-1]
    assert (summary["name"], summary["sent"], summary["acked"]) == ("tool_data", 1_000, 1_000)


@pytest.mark.parametrize("codec", CODECS)
def test_dump_log_segments_reads_our_files(
    start_broker: StartBroker, topic: str, codec: str
) -> None:
    """Kafka's own tool checks every batch, record and index entry of a partition directory."""
    broker = start_broker()
    create_topic(broker, topic, config={"index.interval.bytes": "100"})
    for _ in range(20):
        produce(broker, topic, numbered(50, size=100), compression_type=codec, linger_ms=20)
    assert broker.stop() == 0
    directory = broker.data_dir / f"{topic}-0"
    dump = dump_log(directory / f"{0:020d}.log", "--print-data-log", "--deep-iteration")
    batches = re.findall(r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+)", dump)
    assert int(batches[-1][1]) == 999
    assert sum(int(count) for _, _, count in batches) == 1_000
    assert re.findall(r"compresscodec: (\w+)", dump) == [codec] * len(batches)
    assert dump.count("isvalid: true") == len(batches)
    assert dump.count("payload: 00000000") == 1_000

    for index in ("index", "timeindex"):
        checked = dump_log(directory / f"{0:020d}.{index}", "--verify-index-only")
        assert "mismatch" not in checked.lower()
        assert "Found" not in checked
    index = dump_log(directory / f"{0:020d}.index")
    assert len(re.findall(r"^offset: ", index, re.MULTILINE)) >= 10


def dump_log(file: Path, *args: str) -> str:
    done = kafka_tool(f"{TOOLS}.DumpLogSegments", "--files", str(file), *args)
    return done.stdout + done.stderr
