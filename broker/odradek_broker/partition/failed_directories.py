"""Log directories that fail or fill up, as far as the partitions in them are concerned.

A partition in a failed directory is neither led nor followed here until the broker starts again;
the controller learns of it with the next heartbeat and elects others. Into a full directory nothing
is fetched until it has room.
"""

import logging
from collections.abc import Collection

from odradek_broker.log.errors import LogDirError
from odradek_broker.partition.hosted import HostedPartitions
from odradek_broker.partition.moving import ReplicaMover
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.write_pass import WritePass
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.rate_limited_log import RateLimitedLog
from odradek_protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)


class FailedDirectories:
    def __init__(
        self, hosted: HostedPartitions, writes: WritePass, mover: ReplicaMover, clock: Clock
    ) -> None:
        self._hosted = hosted
        self._writes = writes
        self._mover = mover
        self._clock = clock
        self._limited = RateLimitedLog(logger)

    def failed(self, error: LogDirError) -> None:
        if error.offline:
            self.leave(error.path)
        else:
            self._limited.warning(error.path, self._clock.monotonic_ms(), "%s", error)

    def leave(self, path: str) -> None:
        """The partitions of this directory have no role until the broker starts again."""
        self._mover.directory_failed(path)
        for partition in self._hosted.by_name.values():
            if partition.log.log_dir.path == path:
                self.leave_role(partition)

    def leave_role(self, partition: Partition) -> None:
        """The log cannot be used: requests that wait for it look for another leader."""
        hosted = self._hosted
        self._writes.forget(partition)
        if partition.following is not None and hosted.replication is not None:
            hosted.replication.unfollow(partition)
        if partition.leading is not None or partition.following is not None:
            hosted.end_role(partition, ErrorCode.kafka_storage_error)

    def fetch_unless_full(self, full_dirs: Collection[str]) -> None:
        """Stops fetching into these directories, and resumes it where there is room again.

        The leaders see that their follower has stopped, and do not take it into an ISR.
        """
        hosted = self._hosted
        before, hosted.full_dirs = hosted.full_dirs, frozenset(full_dirs)
        changed = before ^ hosted.full_dirs
        if not changed or hosted.replication is None:
            return
        for partition in hosted.by_name.values():
            if partition.following is None or partition.log.log_dir.path not in changed:
                continue
            if partition.log.log_dir.path in hosted.full_dirs:
                hosted.replication.unfollow(partition)
            else:
                hosted.replication.follow(partition)
