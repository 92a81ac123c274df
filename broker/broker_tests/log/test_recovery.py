"""After a crash: the longest valid prefix is kept, and a wrong record is never served.

The log under test has several segments; its last three batches are cut at every byte, and bits
are flipped all over the files. Whatever happened, what is read afterwards must be a prefix of
what was written (for damage in the .log) or all of it (for damage in an index).
"""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from crc32c import crc32c

from broker_tests.log.support import (
    NOW_MS,
    TP,
    append,
    batch,
    batches_of,
    commit,
    fetch,
    open_log,
    open_manager,
    read_all,
)
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.loading import LoadOptions, load_log
from odradek_broker.log.log import Log
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.records import compression
from odradek_protocol.records.record_batch import read_header
from odradek_protocol.records.records import Record, read_records

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=150)
CODECS = (compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD)
SEED = 20251116


def filled_log(batches: int = 24) -> tuple[SimDisk, Log, list[Record]]:
    """Segments of about 8 batches, all codecs, idempotent producers, two leader epochs."""
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    sequence = 0
    for number in range(batches):
        values = [f"{number}-{n}-" + "payload " * n for n in range(1 + number % 3)]
        idempotent = number % 2 == 1
        data = batch(
            *values,
            timestamp=NOW_MS + 7 * number,
            codec=CODECS[number % 5],
            producer=(100, 0, sequence) if idempotent else (-1, -1, -1),
        )
        sequence += len(values) if idempotent else 0
        log.append_as_leader(data, number // 10, NOW_MS)
    commit(log)
    return disk, log, read_all(log)


def files_of(disk: SimDisk, log: Log) -> dict[str, bytes]:
    return {entry.name: disk.read(f"{log.dir}/{entry.name}") for entry in disk.scan(log.dir)}


def reload(files: dict[str, bytes], *, clean: bool = False, recovery_point: int = 0) -> Log:
    """A fresh disk with these files, loaded as after a crash."""
    disk = SimDisk()
    log_dir = open_manager(disk).dirs[0]
    directory = f"/data/{TP}"
    disk.make_dir(directory)
    for name, data in files.items():
        disk.open(f"{directory}/{name}", create=True).pwritev([data], 0)
    options = LoadOptions(clean=clean, recovery_point=recovery_point)
    return load_log(log_dir, TP, CONFIG, options, NOW_MS)


def last_log_file(files: dict[str, bytes]) -> str:
    return max(name for name in files if name.endswith(".log"))


def batch_starts(data: bytes) -> list[int]:
    starts, at = [], 0
    for one in batches_of(data):
        starts.append(at)
        at += len(one)
    return [*starts, at]


def test_every_truncation_of_the_last_three_batches() -> None:
    disk, log, records = filled_log(30)
    files = files_of(disk, log)
    name = last_log_file(files)
    data = files[name]
    starts = batch_starts(data)
    assert len(starts) > 4
    for size in range(starts[-4], len(data) + 1):
        found = reload({**files, name: data[:size]})
        kept = max(start for start in starts if start <= size)
        end = log.log_end_offset if kept == len(data) else read_header(data, kept).base_offset
        assert found.log_end_offset == end, f"cut at {size}"
        assert read_all(found) == [record for record in records if record.offset < end]
        assert found.active.size == kept
        assert found.epochs.entries == [entry for entry in log.epochs.entries if entry[1] < end]


def positions(
    rng: Random, files: dict[str, bytes], suffix: str, count: int
) -> Iterator[tuple[Any, ...]]:
    """(name, byte, bit), spread over all files of a kind."""
    names = [name for name in files if name.endswith(suffix) and files[name]]
    total = sum(len(files[name]) for name in names)
    for name in names:
        share = max(1, count * len(files[name]) // total)
        for _ in range(share):
            yield name, rng.randrange(len(files[name])), rng.randrange(8)


def flipped(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def test_bit_flips_in_the_log_after_a_crash() -> None:
    """The damaged batch and all that follows are cut off, unless only its epoch is damaged."""
    disk, log, records = filled_log()
    files = files_of(disk, log)
    rng = Random(SEED)
    for name, at, bit in positions(rng, files, ".log", 3000):
        found = reload({**files, name: flipped(files[name], at, bit)})
        start = max(start for start in batch_starts(files[name]) if start <= at)
        hit = read_header(files[name], start)
        in_epoch = 12 <= at - start < 16
        end = log.log_end_offset if in_epoch else hit.base_offset
        context = f"{name}: bit {bit} of byte {at}, {at - start} in its batch"
        assert found.log_end_offset == end, context
        assert read_all(found) == [record for record in records if record.offset < end], context


def test_every_bit_of_the_headers_outside_the_crc() -> None:
    """Base offset, length and magic have no checksum: order and lengths reveal the damage."""
    disk, log, records = filled_log()
    files = files_of(disk, log)
    name = last_log_file(files)
    for start in batch_starts(files[name])[:-1]:
        end = read_header(files[name], start).base_offset
        for at in (*range(12), 16):
            for bit in range(8):
                found = reload({**files, name: flipped(files[name], start + at, bit)})
                assert found.log_end_offset == end
                assert read_all(found) == [record for record in records if record.offset < end]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_bit_flips_in_indexes_after_a_clean_shutdown(suffix: str) -> None:
    """Nothing is rebuilt at load then: a lookup itself must notice."""
    disk, log, records = filled_log()
    log.close()
    files = files_of(disk, log)
    rng = Random(SEED)
    for name, at, bit in positions(rng, files, suffix, 1500):
        found = reload({**files, name: flipped(files[name], at, bit)}, clean=True)
        context = f"{name}: bit {bit} of byte {at}"
        assert found.log_end_offset == log.log_end_offset, context
        offset = rng.randrange(log.log_end_offset)
        assert read_all(found, offset) == records[offset:], context
        wanted = NOW_MS + rng.randrange(7 * 23)
        expected = next(record for record in records if record.timestamp >= wanted)
        by_time = found.offset_for_timestamp(wanted)
        assert by_time is not None
        assert by_time.offset == expected.offset, context
        assert [segment.max_timestamp for segment in found.segments] == [
            segment.max_timestamp for segment in log.segments
        ], context


def test_every_truncation_of_the_indexes_after_a_clean_shutdown() -> None:
    disk, log, records = filled_log()
    log.close()
    files = files_of(disk, log)
    for name in files:
        if name.endswith((".index", ".timeindex")):
            for size in range(len(files[name])):
                found = reload({**files, name: files[name][:size]}, clean=True)
                assert read_all(found) == records
                by_time = found.offset_for_timestamp(NOW_MS + 50)
                expected = next(one for one in records if one.timestamp >= NOW_MS + 50)
                assert by_time is not None
                assert by_time.offset == expected.offset


def test_bit_flips_in_the_last_segment_after_a_clean_shutdown_are_not_served_as_records() -> None:
    """Sealed bytes are not read again at load. The client's CRC check is the last defence:

    the result must be a batch whose CRC fails, an error, or a prefix of the written records.
    """
    disk, log, records = filled_log()
    log.close()
    files = files_of(disk, log)
    truth = {record.offset: record for record in records}
    rng = Random(SEED)
    for name, at, bit in positions(rng, files, ".log", 1500):
        found = reload({**files, name: flipped(files[name], at, bit)}, clean=True)
        for record in _as_a_client_reads(found):
            assert truth[record.offset] == record, f"{name}: bit {bit} of byte {at}"


def _as_a_client_reads(log: Log) -> list[Record]:
    """Reads with the checks that every client makes; stops at the first damage."""
    found: list[Record] = []
    position = log.log_start_offset
    while True:
        try:
            data = fetch(log, position)
        except KafkaError:
            return found
        if not data:
            return found
        at = 0
        while at < len(data):
            header = read_header(data[at:].ljust(61, b"\0"))
            one = data[at : at + header.size]
            if header.magic != 2 or header.size < 61 or len(one) < header.size:
                return found
            if crc32c(one[21:]) != header.crc or header.base_offset != position:
                return found
            found += read_records(one)
            position = header.next_offset
            at += header.size


def test_damaged_files_of_all_kinds_at_once() -> None:
    """Random garbage in every file but the .log: all is rebuilt."""
    disk, log, records = filled_log()
    log.close()
    files = files_of(disk, log)
    rng = Random(SEED)
    for _ in range(300):
        broken = dict(files)
        for name in files:
            if not name.endswith(".log") and rng.random() < 0.7:
                broken[name] = rng.randbytes(rng.randrange(60))
        found = reload(broken)
        assert read_all(found) == records
        assert found.epochs.entries[-1] == log.epochs.entries[-1]
        assert (
            found.producers.entries[100].last_sequence == log.producers.entries[100].last_sequence
        )


def test_a_lost_segment_in_the_middle_ends_the_log_there() -> None:
    disk, log, records = filled_log()
    files = files_of(disk, log)
    logs = sorted(name for name in files if name.endswith(".log"))
    del files[logs[1]]
    found = reload(files)
    assert found.log_end_offset == int(logs[1][:20])
    assert read_all(found) == records[: found.log_end_offset]


def test_segments_below_the_recovery_point_are_not_read() -> None:
    disk, log, _ = filled_log()
    files = files_of(disk, log)
    second = log.segments[1].base_offset
    first_log = f"{0:020d}.log"
    damaged = {**files, first_log: flipped(files[first_log], 30, 1)}
    assert reload(damaged, recovery_point=second).log_end_offset == log.log_end_offset
    assert reload(damaged, recovery_point=second - 1).log_end_offset == 0


def test_recovery_twice_is_recovery_once() -> None:
    disk, log, _ = filled_log()
    files = files_of(disk, log)
    name = last_log_file(files)
    once = reload({**files, name: files[name][:-5]})
    once.active.offset_index.save()
    again = reload(files_of(once.log_dir.disk, once))  # type: ignore[arg-type]
    assert again.log_end_offset == once.log_end_offset
    assert read_all(again) == read_all(once)
    append(again, "next")
    assert read_all(again)[-1].offset == once.log_end_offset
