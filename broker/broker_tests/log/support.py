"""Helpers that build batches and logs, and read their contents."""

from collections.abc import Iterator
from uuid import UUID

from broker_tests.manual_clock import ManualClock
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.log import Log
from odradek_broker.log.lookup import find_aborted
from odradek_broker.log.manager import LogManager
from odradek_broker.log.types import AbortedTransaction
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.disk import Disk
from odradek_protocol.ids import Offset, TopicPartition
from odradek_protocol.records.record_batch import read_header
from odradek_protocol.records.records import BatchProducer, Record, build_batch, read_records

NOW_MS = 1_700_000_000_000
TP = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7)
SETTINGS = LogSettings(cluster_id="cluster", node_id=1, recovery_threads_per_dir=1)


def batch(
    *values: str,
    timestamp: int = NOW_MS,
    base_offset: Offset = 0,
    codec: int = 0,
    leader_epoch: int = -1,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    key: str | None = None,
) -> bytearray:
    """A batch with one record per value; `producer` is (id, epoch, base sequence)."""
    numbers = range(base_offset, base_offset + len(values))
    records = [
        Record(offset, timestamp, key.encode() if key else None, value.encode())
        for offset, value in zip(numbers, values, strict=True)
    ]
    return bytearray(
        build_batch(
            records,
            codec=codec,
            leader_epoch=leader_epoch,
            producer=BatchProducer(*producer),
            transactional=transactional,
        )
    )


def open_manager(disk: Disk, *dirs: str, clock: ManualClock | None = None) -> LogManager:
    return LogManager(dirs or ("/data",), disk, clock or ManualClock(NOW_MS), SETTINGS)


def open_log(disk: Disk, config: LogConfig | None = None) -> Log:
    return open_manager(disk).get_or_create(TP, TOPIC_ID, config or LogConfig())


def append(log: Log, *values: str, leader_epoch: int = 0, timestamp: int = NOW_MS) -> Offset:
    """Append and write one batch as the only replica would; gives its first offset."""
    info = log.append_as_leader(batch(*values, timestamp=timestamp), leader_epoch, NOW_MS)
    commit(log)
    return info.first_offset


def roll(log: Log, now_ms: int = NOW_MS) -> None:
    """Begin a new segment, which production code does only when a batch or retention asks."""
    log._appender.roll(now_ms)


def aborted_transactions(
    log: Log, from_offset: Offset, to_offset: Offset
) -> list[AbortedTransaction]:
    """The aborted transactions with records in [from, to)."""
    return find_aborted(log.segments, from_offset, to_offset)


def commit(log: Log) -> None:
    log.write_pending()
    log.high_watermark = log.written_offset


def read_all(log: Log, offset: Offset | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """The records that a consumer gets from `offset` to the end, fetch by fetch."""
    position = log.log_start_offset if offset is None else offset
    found: list[Record] = []
    while True:
        data = fetch(log, position, max_bytes)
        if not data:
            return found
        for record in records_of(data):
            if record.offset >= position:
                found.append(record)
        position = next_offset(data)


def fetch(log: Log, offset: Offset, max_bytes: int = 1 << 20, upper: Offset = 1 << 62) -> bytes:
    found, _ = log.read(offset, max_bytes, upper)
    return b"" if found is None else found.file.pread(found.length, found.position)  # type: ignore[attr-defined]


def batches_of(data: bytes) -> Iterator[bytes]:
    """The whole batches at the front; a cut one at the end is left out, as clients do."""
    at = 0
    while len(data) - at >= 61:
        size = read_header(data, at).size
        if at + size > len(data):
            return
        yield data[at : at + size]
        at += size


def records_of(data: bytes) -> Iterator[Record]:
    for one in batches_of(data):
        yield from read_records(one)


def next_offset(data: bytes) -> Offset:
    return max(read_header(one).next_offset for one in batches_of(data))


def values(log: Log, offset: Offset | None = None) -> list[str]:
    return [(record.value or b"").decode() for record in read_all(log, offset)]
