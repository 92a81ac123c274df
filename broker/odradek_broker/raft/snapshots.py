"""When a node writes a snapshot of its metadata, and how.

After `metadata.log.max.record.bytes.between.snapshots` of committed records, or when
`metadata.log.max.snapshot.interval.ms` is over and something was committed since the last. The
image never changes, so a thread can write it while the loop goes on.

The log then begins where the snapshot *before* the new one ends: a follower that is a little
behind finds the records it needs and does not have to fetch a snapshot.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek_broker.log.errors import LogDirError
from odradek_broker.metadata.image_records import records_of
from odradek_broker.metadata.record_codec import encode_record
from odradek_broker.model.ids import Offset
from odradek_broker.raft.log_files import LogFiles
from odradek_broker.raft.snapshot_files import encode_snapshot
from odradek_broker.raft.types import AdvanceLogStart, SnapshotCreated
from odradek_broker.raft.values import OffsetAndEpoch, SnapshotInfo
from odradek_broker.raft.voters import VoterSet
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.tasks import Threads

if TYPE_CHECKING:
    from odradek_broker.raft.service import QuorumService

logger = logging.getLogger(__name__)

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    record_bytes_max: int = 20 * 1024 * 1024
    interval_ms: int = 3_600_000  # 0: only by bytes


class Snapshots:
    def __init__(
        self, files: LogFiles, policy: SnapshotPolicy, threads: Threads, clock: Clock
    ) -> None:
        self._files = files
        self._policy = policy
        self._threads = threads
        self._clock = clock
        self._bytes = 0  # committed since the last one
        self._last_offset: Offset = 0
        self._last_ms = clock.monotonic_ms()
        self._writing = False

    def count(self, size_bytes: int) -> None:
        self._bytes += size_bytes

    def loaded(self, snapshot: SnapshotInfo) -> None:
        """One came from disk or from the leader."""
        self._bytes, self._last_offset = 0, snapshot.id.offset
        self._last_ms = self._clock.monotonic_ms()

    def due_ms(self, applied_offset: Offset) -> float:
        if self._writing or applied_offset <= self._last_offset or not self._policy.interval_ms:
            return NEVER
        return self._last_ms + self._policy.interval_ms

    def take_if_due(self, service: QuorumService) -> None:
        if self._writing or service.applied_offset <= self._last_offset:
            return
        due = self._bytes >= self._policy.record_bytes_max
        if due or self._clock.monotonic_ms() >= self.due_ms(service.applied_offset):
            self.take(service)

    def take(self, service: QuorumService) -> None:
        """Write everything that is applied so far."""
        state = service.state
        offset = service.applied_offset
        snapshot_id = OffsetAndEpoch(offset, state.log.epoch_before(offset))
        voters = state.log.voters.at(offset).voters
        image, now_ms = service.publisher.image, self._clock.now_ms()
        self._writing, self._bytes = True, 0
        self._last_offset, self._last_ms = offset, self._clock.monotonic_ms()
        size = 0

        def write() -> None:
            nonlocal size
            records = map(encode_record, records_of(image))
            data = encode_snapshot(snapshot_id, voters, records, now_ms)
            size = len(data)
            try:
                self._files.write_snapshot(snapshot_id, data)
                self._files.remove_doomed(now_ms)
            except OSError as error:
                raise self._files.log.log_dir.fail(error) from error

        def done(error: BaseException | None) -> None:
            self._writing = False
            if error is None:
                info = SnapshotInfo(snapshot_id, size)
                service.tell(lambda: self._written(service, info, voters))
            else:
                logger.error("snapshot %s was not written: %s", snapshot_id, error)
                assert isinstance(error, LogDirError), error

        self._threads.run(write, done)

    def _written(self, service: QuorumService, info: SnapshotInfo, voters: VoterSet) -> None:
        newest = service.state.log.snapshot
        if newest is not None and newest.id.offset >= info.id.offset:
            return  # the leader's was newer; the file goes with the next one
        logger.info("snapshot %s: %d bytes", info.id, info.size_bytes)
        self._files.snapshot_written(info, voters)
        service.give(AdvanceLogStart())
        service.give(SnapshotCreated(info))
