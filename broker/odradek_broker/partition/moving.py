"""Replicas that move from one log directory of this broker to another, while they are used.

    mover.start(partition, log_dir)     AlterReplicaLogDirs
    mover.resume(partition)             after a restart: its copy was found on disk
    mover.cancel(partition)             moved back, deleted, or a directory failed

One piece of one replica at a time, in turn. Reading may wait for the disk, so it is done in a
thread; what was read is appended on the loop, as a follower's records are. When a copy has all
but the last piece it is synced in a thread; then the rest is copied and the two logs are swapped
within one pass of the loop, so readers see either of them, never a mixture. Records that
arrive during a copy are copied in another round. `log/copying.py` and `log/future_logs.py` have the
details.

`replica.alter.log.dirs.io.max.bytes.per.second` bounds the bytes of all moves together.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from odradek_broker.log import copying
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.log import Log
from odradek_broker.log.log_dir import LogDir
from odradek_broker.log.manager import LogManager
from odradek_broker.log.types import FileRange
from odradek_broker.partition.partition import Partition
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.disk import File
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tasks import Scheduler, Threads
from odradek_protocol.error_codes import KafkaError

logger = logging.getLogger(__name__)

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
# A move that must wait for something short (a flush of the replica) looks again after this.
PAUSE_SECONDS = 0.01


@dataclass(slots=True, eq=False)
class Move:
    partition: Partition
    source: Log
    copy: Log
    truncations: int = -1  # of the source, when the copy was last aligned with it
    synced: bool = False  # all but the last piece is durable


class ReplicaMover:
    """Invariant: a move is in `_moves` as long as its copy is in `logs.futures`."""

    def __init__(
        self,
        logs: LogManager,
        settings: Settings,
        clock: Clock,
        scheduler: Scheduler,
        threads: Threads,
        *,
        on_moved: Callable[[Partition], None],
        on_failure: Callable[[LogDirError], None],
    ) -> None:
        self._logs = logs
        self._settings = settings
        self._clock = clock
        self._scheduler = scheduler
        self._threads = threads
        self._on_moved = on_moved
        self._on_failure = on_failure
        self._moves: deque[Move] = deque()
        self._busy = False  # a piece is under way, or its successor is due

    def start(self, partition: Partition, log_dir: LogDir) -> None:
        """Move there. LogDirError if that directory fails at once."""
        copy = self._logs.futures.logs.get(partition.topic_partition)
        if copy is not None and copy.log_dir is log_dir:
            return
        self.cancel(partition)
        if partition.log.log_dir is log_dir:
            return
        self._logs.create_future(partition.log, log_dir)
        logger.info(
            "%s moves from %s to %s",
            partition.topic_partition,
            partition.log.log_dir.path,
            log_dir.path,
        )
        self.resume(partition)

    def resume(self, partition: Partition) -> None:
        """Go on with the copy that there is, if there is one."""
        copy = self._logs.futures.logs.get(partition.topic_partition)
        if copy is None:
            return
        if copy.topic_id != partition.log.topic_id or copy.log_dir is partition.log.log_dir:
            self._logs.futures.drop(partition.topic_partition)  # of an older topic of that name
            return
        self._moves.append(Move(partition, partition.log, copy))
        self._go_on(0.0)

    def cancel(self, partition: Partition) -> None:
        """The replica stays where it is; its copy goes. Nothing if it does not move."""
        for move in [move for move in self._moves if move.partition is partition]:
            self._moves.remove(move)
            logger.info("%s: the move to another directory is cancelled", partition.topic_partition)
        self._logs.futures.drop(partition.topic_partition)

    def directory_failed(self, path: str) -> None:
        """Neither from nor to a directory that failed can anything move."""
        for move in list(self._moves):
            if path in (move.source.log_dir.path, move.copy.log_dir.path):
                try:
                    self.cancel(move.partition)
                except LogDirError as error:
                    logger.error("%s", error)

    # --- one piece after the other ------------------------------------------------------------

    def _go_on(self, delay_seconds: float) -> None:
        if not self._busy and self._moves:
            self._busy = True
            self._scheduler.call_later(delay_seconds, self._next)

    def _next(self) -> None:
        self._busy = False
        if not self._moves:
            return
        move = self._moves[0]
        self._moves.rotate(-1)
        pause = 0.0
        try:
            pause = self._advance(move)
        except LogDirError as error:
            self._on_failure(error)
            pause = PAUSE_SECONDS
        except KafkaError as error:
            logger.error("%s does not move: %s", move.partition.topic_partition, error)
            self.cancel(move.partition)
        self._go_on(pause)

    def _advance(self, move: Move) -> float:
        """Begin the next step of this copy; seconds to wait before the next step of any."""
        source, copy = move.source, move.copy
        now_ms = self._clock.now_ms()
        if source.truncations != move.truncations or copy.log_end_offset < source.log_start_offset:
            copying.align(source, copy, now_ms)
            move.truncations = source.truncations
        found = copying.next_range(source, copy)
        last_piece = found is None or _reaches_end(source, found)
        if not last_piece and found is not None:
            self._read(move, found)
        elif not move.synced:
            self._sync(move)
        elif move.partition.flushing or not copy.flushing.acquire(blocking=False):
            return PAUSE_SECONDS
        else:
            try:
                self._finish(move, now_ms)
            finally:
                copy.flushing.release()
        return 0.0

    def _read(self, move: Move, found: FileRange) -> None:
        self._busy = True
        data: list[bytes] = []
        end_offset, truncations = move.copy.log_end_offset, move.source.truncations

        def done(error: BaseException | None) -> None:
            self._busy = False
            taken = 0
            if isinstance(error, OSError):
                self._on_failure(move.source.log_dir.fail(error))
                self._go_on(PAUSE_SECONDS)
                return
            if move in self._moves:
                assert error is None, error
                unchanged = (move.copy.log_end_offset, move.source.truncations)
                if unchanged == (end_offset, truncations):
                    taken = self._take(move, data[0])
            rate = self._settings.optional_int(RATE)
            self._go_on(taken / max(rate, 1) if rate is not None else 0.0)

        self._threads.run(lambda: data.append(read_range(found)), done)

    def _take(self, move: Move, data: bytes) -> int:
        try:
            return copying.take(move.source, move.copy, data, self._clock.now_ms())
        except LogDirError as error:
            self._on_failure(error)
        except KafkaError as error:
            logger.error("%s does not move: %s", move.partition.topic_partition, error)
            self.cancel(move.partition)
        return 0

    def _sync(self, move: Move) -> None:
        self._busy = True

        def done(error: BaseException | None) -> None:
            self._busy = False
            if isinstance(error, LogDirError):
                self._on_failure(error)
                self._go_on(PAUSE_SECONDS)
                return
            assert error is None, error
            move.synced = True
            self._go_on(0.0)

        self._threads.run(lambda: copying.flush_copy(move.copy), done)

    def _finish(self, move: Move, now_ms: int) -> None:
        """The last piece and the swap, without a break; the copy's flush lock is held."""
        partition, source, copy = move.partition, move.source, move.copy
        source.write_pending()
        while (found := copying.next_range(source, copy)) is not None:
            copying.take(source, copy, read_range(found), now_ms)
        if copy.recovery_point < source.recovery_point:
            copy.flush_locked(now_ms)
        if not copying.is_complete(source, copy):
            return
        partition.log = self._logs.swap(partition.topic_partition)
        self._moves.remove(move)
        logger.info("%s is in %s now", partition.topic_partition, copy.log_dir.path)
        self._on_moved(partition)


def read_range(found: FileRange) -> bytes:
    """In any thread."""
    return cast(File, found.file).pread(found.length, found.position)


def _reaches_end(source: Log, found: FileRange) -> bool:
    """Whether this piece is all that is left."""
    active = source.active
    return found.file is active.file() and found.position + found.length >= active.written
