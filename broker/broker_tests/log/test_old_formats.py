"""A directory of an old Kafka is refused before any file is changed; entries are built by hand."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from odradek_broker.log.old_formats import old_format
from odradek_broker.runtime.disk import RealDisk
from odradek_cli.processes import StartFailedError
from odradek_testkit.engines import RunningBroker


def entry(magic: int, value: bytes = b"hello", *, attributes: int = 0) -> bytes:
    """offset, size, crc, magic, attributes, (format 1: timestamp), key (null), value."""
    time = struct.pack(">q", 1_400_000_000_000) if magic == 1 else b""
    covered = struct.pack(">bb", magic, attributes) + time
    covered += struct.pack(">ii", -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(covered)) + covered
    return struct.pack(">qi", 0, len(message)) + message


def segment(directory: Path, content: bytes, base: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base:020}.log"
    path.write_bytes(content)
    return path


def tree(top: Path) -> dict[str, bytes]:
    return {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}


@pytest.mark.parametrize("magic", [0, 1])
def test_a_broker_does_not_start_and_changes_no_log(tmp_path: Path, magic: int) -> None:
    data = tmp_path / "data"
    segment(data / "orders-0", entry(magic) * 3)
    before = tree(data)
    broker = RunningBroker(directory=tmp_path)
    with pytest.raises(StartFailedError) as failed:
        broker.start()
    assert failed.value.exit_code not in (0, None)
    assert f"orders-0/{0:020}.log has records of format {magic}" in failed.value.log
    assert "MirrorMaker 2" in failed.value.log
    after = tree(data)
    assert {name: after[name] for name in before} == before
    assert [name for name in after if name.startswith("orders-0/")] == list(before)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(100),  # a crash can leave zeros
        entry(1)[:-1],  # torn
        entry(1)[:-1] + b"!",  # another byte than the CRC covers
        entry(2),
        struct.pack(">qiIb", 0, 2**31 - 1, 0, 1),
        struct.pack(">qiIb", 0, -5, 0, 0),
    ],
)
def test_bytes_that_are_no_entry_of_an_old_format(tmp_path: Path, content: bytes) -> None:
    path = segment(tmp_path / "orders-0", content)
    assert old_format(RealDisk(), str(path)) is None


def test_compressed_entries_of_old_formats_are_recognised(tmp_path: Path) -> None:
    path = segment(tmp_path / "orders-0", entry(1, b"x" * 50_000, attributes=1))
    assert old_format(RealDisk(), str(path)) == 1
