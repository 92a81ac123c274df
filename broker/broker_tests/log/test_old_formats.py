"""A directory of an old Kafka is refused before any record is changed.

The old records are written by kafka-python, with the codecs of Kafka 0.9 and 0.10.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from broker_tests.log.support import TOPIC_ID, TP, append, batch, open_manager
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.dir_identity import LogDirConfigError
from odradek_broker.log.old_formats import old_format
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.disk import File, RealDisk
from odradek_cli.processes import StartFailedError
from odradek_testkit.engines import RunningBroker

NONE, GZIP, SNAPPY, LZ4 = range(4)
TIME_MS = 1_400_000_000_000


def entries(magic: int, values: Iterable[bytes] = (b"one", b"two"), *, codec: int = NONE) -> bytes:
    """What a producer of Kafka 0.9 (format 0) or 0.10 (format 1) sends."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset, value in enumerate(values):
        builder.append(offset, TIME_MS, b"key", value)
    return bytes(builder.build())


def segment(directory: Path, content: bytes, base: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base:020}.log"
    path.write_bytes(content)
    return path


def tree(top: Path) -> dict[str, bytes]:
    return {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}


def opened(path: Path) -> File:
    return RealDisk().open(str(path))


def refused(broker: RunningBroker) -> str:
    """The output of a broker that does not start."""
    with pytest.raises(StartFailedError) as failed:
        broker.start()
    assert failed.value.exit_code not in (0, None)
    return failed.value.log


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(0, NONE), (0, GZIP), (0, SNAPPY), (1, NONE), (1, GZIP), (1, SNAPPY), (1, LZ4)],
)
def test_old_formats_are_recognised(tmp_path: Path, magic: int, codec: int) -> None:
    content = entries(magic, [b"x" * 5_000] * 10, codec=codec)
    path = segment(tmp_path / "orders-0", content)
    assert old_format(opened(path)) == magic
    path.write_bytes(b"before" + content)
    assert old_format(opened(path)) is None
    assert old_format(opened(path), len(b"before")) == magic


@pytest.mark.parametrize("magic", [0, 1])
def test_a_broker_does_not_start_and_changes_no_log(tmp_path: Path, magic: int) -> None:
    data = tmp_path / "data"
    segment(data / "orders-0", entries(magic))
    before = tree(data)
    log = refused(RunningBroker(directory=tmp_path))
    assert f"orders-0/{0:020}.log has records of format {magic}, from" in log
    assert "odradek migrate" in log
    after = tree(data)
    assert {name: after[name] for name in before} == before
    assert [name for name in after if name.startswith("orders-0/")] == list(before)


def test_a_directory_of_a_kafka_with_zookeeper_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    segment(data / "orders-0", entries(1))
    (data / "meta.properties").write_text("#\nversion=0\nbroker.id=0\ncluster.id=abc\n")
    before = tree(data)
    log = refused(RunningBroker(directory=tmp_path))
    assert "version 0 is that of an Apache Kafka with ZooKeeper" in log
    assert "MirrorMaker 2" in log
    after = tree(data)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) <= {".lock"}


@pytest.mark.parametrize(
    "segments",
    [
        (b"", entries(1)),  # the cleaner has removed all records of the first segment
        (
            bytes(batch("new")),
            entries(0),
            bytes(batch("new")),
        ),  # the format was set back for a while
    ],
    ids=["after an empty one", "amid newer ones"],
)
def test_old_records_in_a_later_segment(tmp_path: Path, segments: tuple[bytes, ...]) -> None:
    for number, content in enumerate(segments):
        segment(tmp_path / "orders-0", content, number)
    with pytest.raises(LogDirConfigError, match=rf"orders-0/{1:020}\.log has records of format"):
        open_manager(RealDisk(), str(tmp_path))


def test_a_segment_that_was_being_swapped_in(tmp_path: Path) -> None:
    segment(tmp_path / "orders-0", entries(1)).rename(tmp_path / "orders-0" / f"{0:020}.log.swap")
    with pytest.raises(LogDirConfigError, match=r"log\.swap has records of format 1"):
        open_manager(RealDisk(), str(tmp_path))


@pytest.mark.parametrize("clean", [True, False], ids=["clean shutdown", "crash"])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_records_in_the_middle_of_a_segment_are_not_truncated(magic: int, clean: bool) -> None:
    """The format was set back while the segment was written."""
    disk = SimDisk()
    manager = open_manager(disk)
    log = manager.get_or_create(TP, TOPIC_ID, LogConfig())
    append(log, "a", "b")
    path = f"{log.dir}/{0:020}.log"
    if clean:
        manager.close()
    written = disk.read(path)
    mixed = written + entries(magic)
    disk.write(path, mixed)
    if not clean:
        disk.crash(Random(1))
        assert disk.read(path) == mixed
    again = open_manager(disk)
    assert again.clean_shutdown == clean
    with pytest.raises(LogDirConfigError, match=f"format {magic} at position {len(written)}, from"):
        again.load()
    assert disk.read(path) == mixed


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(100),  # a crash can leave zeros
        entries(1, [b"one"])[:-1],  # torn
        entries(1, [b"one"])[:-1] + b"!",  # another byte than the CRC covers
        bytes(batch("one")),
        struct.pack(">qiIb", 0, 2**31 - 1, 0, 1),
        struct.pack(">qiIb", 0, -5, 0, 0),
    ],
)
def test_bytes_that_are_no_entry_of_an_old_format(tmp_path: Path, content: bytes) -> None:
    path = segment(tmp_path / "orders-0", content)
    assert old_format(opened(path)) is None
    open_manager(RealDisk(), str(tmp_path)).close()
