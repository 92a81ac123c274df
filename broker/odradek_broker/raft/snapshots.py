"""When a node writes a snapshot of its metadata, and how.

After `metadata.log.max.record.bytes.between.snapshots` of committed records, or after
`metadata.log.max.snapshot.interval.ms` if anything was committed since the last one. An image is
immutable, so a thread can write it while the loop goes on.

The log then begins where the snapshot *before* the new one ends, so that a follower that is a
little behind still finds the records it needs and does not have to fetch a snapshot.
"""

from __future__ import annotations

import logging

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.image_records import records_of
from odradek_broker.metadata.record_codec import encode_record
from odradek_broker.raft.config import SnapshotPolicy
from odradek_broker.raft.driver import Driver
from odradek_broker.raft.log_files import LogFiles
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.snapshot_files import encode_snapshot
from odradek_broker.raft.types import AdvanceLogStart, SnapshotCreated
from odradek_broker.raft.values import OffsetAndEpoch, SnapshotInfo
from odradek_broker.raft.voters import VoterSet
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.tasks import Threads
from odradek_protocol.ids import Offset

logger = logging.getLogger(__name__)

NEVER = float("inf")


class Snapshots:
    def __init__(
        self, files: LogFiles, policy: SnapshotPolicy, threads: Threads, clock: Clock
    ) -> None:
        self._files = files
        self._policy = policy
        self._threads = threads
        self._clock = clock
        self._last_offset: Offset = 0
        self._last_ms = clock.monotonic_ms()
        self._writing = False

    def loaded(self, snapshot: SnapshotInfo) -> None:
        """A snapshot was loaded from disk or from the leader."""
        self._last_offset = snapshot.id.offset
        self._last_ms = self._clock.monotonic_ms()

    def due_ms(self, applied_offset: Offset) -> float:
        if self._writing or applied_offset <= self._last_offset or not self._policy.interval_ms:
            return NEVER
        return self._last_ms + self._policy.interval_ms

    def is_due(self, applied_offset: Offset, bytes_since: int) -> bool:
        """`bytes_since`: size of the records that were committed since the last snapshot."""
        if self._writing or applied_offset <= self._last_offset:
            return False
        if bytes_since >= self._policy.record_bytes_max:
            return True
        return self._clock.monotonic_ms() >= self.due_ms(applied_offset)

    def take(self, offset: Offset, image: MetadataImage, log: LogView, driver: Driver) -> None:
        """Writes a snapshot of the image, which covers everything below `offset`."""
        snapshot_id = OffsetAndEpoch(offset, log.epoch_before(offset))
        voters = log.voters.at(offset).voters
        now_ms = self._clock.now_ms()
        self._writing = True
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
                driver.call_when_idle(lambda: self._written(driver, info, voters))
            else:
                # The directory is offline now: the next write to it ends this node's part.
                logger.error("snapshot %s was not written: %s", snapshot_id, error)

        self._threads.run(write, done)

    def _written(self, driver: Driver, info: SnapshotInfo, voters: VoterSet) -> None:
        assert driver.state is not None
        newest = driver.state.log.snapshot
        if newest is not None and newest.id.offset >= info.id.offset:
            return  # a newer one came from the leader; the next snapshot deletes this file
        logger.info("snapshot %s: %d bytes", info.id, info.size_bytes)
        self._files.snapshot_written(info, voters)
        driver.give(AdvanceLogStart())
        driver.give(SnapshotCreated(info))
