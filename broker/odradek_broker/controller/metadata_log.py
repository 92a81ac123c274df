"""The metadata log of a single node: `__cluster_metadata-0` on its own disk.

`MetadataLog` is the port through which the controller reaches its log. Here a record is
committed once it is synced to disk; with a quorum it will be once a majority has it, and the
controller will not notice the difference.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from odradek_broker.log.file_cache import FileCache
from odradek_broker.log.loading import LoadOptions, load_log
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.metadata.record_codec import decode_record, encode_record
from odradek_broker.metadata.records import MetadataRecord
from odradek_broker.model.ids import LeaderEpoch, Offset, TopicPartition
from odradek_broker.model.log_config import LogConfig
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.disk import Disk, File
from odradek_broker.runtime.settings import Settings
from odradek_broker.wire.record_batch import read_header
from odradek_broker.wire.records import Record, build_batch, read_records

METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)

BATCH_BYTES_MAX = 8 * 1024 * 1024  # as Kafka; 10,000 partitions take some 700 KB
READ_BYTES = 1024 * 1024
OPEN_FILES_MAX = 16

RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]  # e.g. asyncio.to_thread


class Committed(NamedTuple):
    """A record that is in the log for good."""

    offset: Offset
    record: MetadataRecord


class MetadataLog(Protocol):
    @property
    def epoch(self) -> LeaderEpoch:
        """The controller epoch: grows with each controller."""

    @property
    def next_offset(self) -> Offset: ...

    def read_all(self) -> Iterator[Committed]:
        """Everything that is committed; at start, before the first append."""

    def append(self, records: Sequence[MetadataRecord]) -> Awaitable[None]:
        """Append as one batch: all of them or none. Their offsets are given at once; the
        awaitable is done when they are committed, and raises LogDirError if that failed."""


def open_metadata_log(directory: Path, disk: Disk, settings: Settings, now_ms: int) -> Log:
    """The log in `<directory>/__cluster_metadata-0`, created if it is not there.

    It is always recovered as after a crash: its tail decides what exists, and it is short.
    """
    disk.make_dir(f"{directory}/{METADATA_PARTITION}")
    config = LogConfig(
        segment_bytes=settings.int("metadata.log.segment.bytes"),
        segment_ms=settings.int("metadata.log.segment.ms"),
        max_message_bytes=BATCH_BYTES_MAX,
        retention_ms=-1,  # nothing goes until there are snapshots
    )
    log_dir = LogDir(str(directory), disk, FileCache(disk, OPEN_FILES_MAX))
    return load_log(log_dir, METADATA_PARTITION, config, LoadOptions(clean=False), now_ms)


class LocalMetadataLog:
    """Several appends that wait at the same time share one fsync."""

    def __init__(self, log: Log, clock: Clock, run_blocking: RunBlocking) -> None:
        self._log = log
        self._clock = clock
        self._run_blocking = run_blocking
        self._flush_lock = asyncio.Lock()
        self._flushed_offset: Offset = log.log_end_offset
        self.epoch: LeaderEpoch = max(log.epochs.latest, 0) + 1

    @property
    def next_offset(self) -> Offset:
        return self._log.log_end_offset

    def read_all(self) -> Iterator[Committed]:
        offset = self._log.log_start_offset
        end_offset = self._log.log_end_offset
        while offset < end_offset:
            found, _ = self._log.read(offset, READ_BYTES, end_offset)
            assert found is not None, f"no batch at {offset} of {end_offset}"
            data = memoryview(_file(found.file).pread(found.length, found.position))
            while len(data) > 0:
                header = read_header(data)
                if header.size > len(data):
                    break  # the range ended inside a batch: read on from here
                if not header.is_control:
                    for record in read_records(data[: header.size]):
                        yield Committed(record.offset, decode_record(record.value or b""))
                offset = header.next_offset
                data = data[header.size :]

    def append(self, records: Sequence[MetadataRecord]) -> Awaitable[None]:
        now_ms = self._clock.now_ms()
        batch = build_batch(
            [Record(i, now_ms, None, encode_record(record)) for i, record in enumerate(records)]
        )
        self._log.append_as_leader(bytearray(batch), self.epoch, now_ms, from_client=False)
        self._log.write_pending()
        return self._commit(self._log.log_end_offset)

    async def _commit(self, end_offset: Offset) -> None:
        async with self._flush_lock:
            if self._flushed_offset >= end_offset:
                return
            target = self._log.written_offset
            await self._run_blocking(self._log.flush)
            self._flushed_offset = target


def _file(file: object) -> File:
    """A range's file, as one to read from; the log's own files all are."""
    assert hasattr(file, "pread")
    return file  # type: ignore[return-value]
