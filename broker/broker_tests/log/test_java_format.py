"""Apache Kafka's dump tool and its broker read our files, and we read Kafka's."""

from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_tests.log.support import (
    NOW_MS,
    SETTINGS,
    TOPIC_ID,
    TP,
    aborted_transactions,
    batch,
    commit,
    read_all,
)
from odradek_broker.log.dump import SUFFIXES, DumpOptions, RowKind, dump_file, format_row
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.log import Log
from odradek_broker.log.manager import LogManager
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.disk import RealDisk
from odradek_protocol import ids
from odradek_testkit.clients import value_of
from odradek_testkit.engines import RunningApacheKafka, kafka_tool

pytestmark = pytest.mark.java

DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
EVERYTHING = DumpOptions(deep=True, print_data=True)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def java_dump(files: list[Path], *flags: str) -> tuple[dict[str, list[str]], str]:
    """The output of Kafka's tool for each file, and its complaints."""
    done = kafka_tool(DUMP_TOOL, *flags, "--files", ",".join(map(str, files)))
    lines: dict[str, list[str]] = defaultdict(list)
    name = ""
    for line in done.stdout.split("\n"):
        if line.startswith("Dumping "):
            name = line.removeprefix("Dumping ")
        elif line:
            lines[name].append(line.rstrip())
    return lines, done.stderr


def our_dump(path: Path) -> list[str]:
    return [format_row(row).rstrip() for row in dump_file(path, EVERYTHING)]


def segment_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)


def assert_same_dump(directory: Path) -> None:
    """The lines that DumpLogSegments prints for every file of a partition."""
    files = segment_files(directory)
    java, complaints = java_dump(files, "--deep-iteration", "--print-data-log")
    for path in files:
        assert our_dump(path) == java[str(path)], path
    assert "Mismatches" not in complaints
    assert "mismatch" not in complaints
    assert "not found" not in complaints


def write_log_of_all_kinds(data_dir: Path) -> Log:
    """All codecs, two segments, idempotent producers, aborted, committed and open transactions."""
    manager = LogManager([str(data_dir)], RealDisk(), SystemClock(), SETTINGS)
    config = LogConfig(segment_bytes=3000, index_interval_bytes=200)
    log = manager.get_or_create(TP, TOPIC_ID, config)
    for number in range(30):
        values = [f"v{number}-{n}" for n in range(3)]
        sequence = 3 * number
        data = batch(
            *values,
            timestamp=NOW_MS + 10 * number,
            codec=number % 5,
            producer=(77, 1, sequence),
            key="k" if number % 2 else None,
        )
        log.append_as_leader(data, number // 10, NOW_MS)
    for sequence, end in ((0, EndTxnMarker(False, 5)), (1, EndTxnMarker(True, 6))):
        data = batch("in transaction", producer=(88, 0, sequence), transactional=True)
        log.append_as_leader(data, 4, NOW_MS)
        log.append_control(88, 0, end, 4, NOW_MS)
    log.append_as_leader(batch("open", producer=(99, 3, 0), transactional=True), 4, NOW_MS)
    commit(log)
    manager.close()
    return log


def test_kafkas_dump_tool_reads_our_files(tmp_path: Path) -> None:
    log = write_log_of_all_kinds(tmp_path)
    directory = Path(log.dir)
    names = {path.suffix for path in segment_files(directory)}
    assert names == set(SUFFIXES)
    assert_same_dump(directory)
    indexes = [path for path in segment_files(directory) if path.suffix in (".index", ".timeindex")]
    checked, complaints = java_dump(indexes, "--index-sanity-check")
    assert all(lines == [f"{name} passed sanity check."] for name, lines in checked.items())
    assert len(checked) == len(indexes)
    verified, complaints = java_dump(indexes, "--verify-index-only")
    assert not any(verified.values())
    assert complaints == ""


def test_our_dump_says_what_is_wrong(tmp_path: Path) -> None:
    directory = Path(write_log_of_all_kinds(tmp_path).dir)
    log_file, index = directory / f"{0:020d}.log", directory / f"{0:020d}.index"
    with log_file.open("r+b") as file:
        file.seek(150)
        file.write(b"\xff")
    damaged = [row for row in dump_file(log_file) if row.fields.get("isvalid") is False]
    assert len(damaged) == 1
    with log_file.open("ab") as file:
        file.write(b"torn batch")
    problems = [row for row in dump_file(log_file) if row.kind is RowKind.PROBLEM]
    assert [format_row(row) for row in problems] == [
        f"Found 10 invalid bytes at the end of {log_file.name}"
    ]
    data = bytearray(index.read_bytes())
    data[-1] ^= 1
    index.write_bytes(data)
    problems = [row for row in dump_file(index) if row.kind is RowKind.PROBLEM]
    assert len(problems) == 1


@pytest.mark.long  # starts Apache Kafka again for each direction
@pytest.mark.timeout(180)
def test_from_kafka_to_us_and_back(tmp_path: Path) -> None:
    """
    1. Apache Kafka gets records of all codecs and an aborted transaction, and is stopped.
    2. Our log manager loads its directory, reads everything and appends.
    3. Apache Kafka starts again on the same directory; a consumer reads everything.
    4. Kafka is killed; we recover its directory.
    """
    topic = "crossing"
    kafka = RunningApacheKafka(directory=tmp_path)
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        config = {"segment.bytes": str(1 << 20), "index.interval.bytes": "1000"}
        for future in admin.create_topics([NewTopic(topic, 1, config=config)]).values():
            future.result()
        sent = produce_all_codecs(kafka.bootstrap, topic)
    directory = kafka.data_dir / f"{topic}-0"
    assert_same_dump(directory)

    appended = "appended by odradek"
    log = load(kafka).logs[ids.TopicPartition(topic, 0)]
    assert log.topic_id != ids.ZERO_UUID
    assert len(log.segments) > 1
    values = [record.value for record in read_all(log) if record.value and len(record.value) > 6]
    assert values == sent
    assert aborted_transactions(log, 0, log.log_end_offset)
    log.append_as_leader(batch(appended), log.epochs.latest, NOW_MS)
    close(log)
    assert_same_dump(directory)

    with kafka:
        found = consume(kafka.bootstrap, topic)
        assert found == [value for value in sent if b"aborted" not in value] + [appended.encode()]
        produce(kafka.bootstrap, topic, [b"after the visit"])
        kafka.kill()
        recovered = load(kafka)
        assert not recovered.clean_shutdown
        log = recovered.logs[ids.TopicPartition(topic, 0)]
        assert read_all(log)[-1].value == b"after the visit"
        close(log)
        kafka.start()


def load(kafka: RunningApacheKafka) -> LogManager:
    settings = LogSettings(cluster_id=kafka.cluster_id, node_id=1)
    manager = LogManager([str(kafka.data_dir)], RealDisk(), SystemClock(), settings)
    manager.load()
    for log in manager.logs.values():
        log.high_watermark = log.log_end_offset
    _managers[kafka.data_dir] = manager
    return manager


_managers: dict[Path, LogManager] = {}


def close(log: Log) -> None:
    log.write_pending()
    log.high_watermark = log.written_offset
    _managers.pop(Path(log.log_dir.path)).close()


def produce_all_codecs(bootstrap: str, topic: str) -> list[bytes]:
    """About 4 MB, so that there are several segments; gives the values in order."""
    sent = []
    rng = Random(20251116)
    for codec in CODECS:
        values = [f"{codec}-{n}-{rng.randbytes(1500).hex()}".encode() for n in range(400)]
        produce(bootstrap, topic, values, {"compression.type": codec, "enable.idempotence": True})
        sent += values
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    producer.init_transactions(30)
    for outcome in ("aborted", "committed"):
        producer.begin_transaction()
        values = [f"{outcome}-{n}-".encode() * 20 for n in range(10)]
        for value in values:
            producer.produce(topic, value)
        producer.flush(30)
        if outcome == "aborted":
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
        sent += values
    return sent


def produce(
    bootstrap: str, topic: str, values: list[bytes], config: dict[str, object] | None = None
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **(config or {})})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(bootstrap: str, topic: str) -> list[bytes]:
    """Everything up to the end, committed transactions only."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "nothing came for 30 s"
        error = message.error()
        if error:
            assert error.name() == "_PARTITION_EOF"
            consumer.close()
            return found
        found.append(value_of(message))
