"""A leader's answer for one partition, applied to its follower's state and log.

A pass of `replication/fetcher.py` calls `apply` for each partition of an answer. Two things take
longer than the pass: an fsync that `flush.messages` asks for, and the look-up of the leader's
offsets when ours is out of range. When they are done, `touch` puts the partition into a pass again.

What fails for one partition (damaged data, no disk) concerns that one only.
"""

import asyncio
import logging
from collections.abc import Callable

from odradek_broker.log.errors import RETRY_SECONDS, LogDirError, NoRoomError
from odradek_broker.partition import follower_state
from odradek_broker.partition.follower_state import FetchPosition, Status
from odradek_broker.replication.applying import carry_out
from odradek_broker.replication.batches import whole_batches
from odradek_broker.replication.followed import FetcherContext, Followed
from odradek_broker.replication.leader_calls import LeaderConnection, leader_offsets
from odradek_broker.replication.session import Key
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.runtime.rate_limited_log import RateLimitedLog
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.fetch_response import FetchedPartition

logger = logging.getLogger(__name__)


class AnswerApplier:
    def __init__(
        self, connection: LeaderConnection, context: FetcherContext, touch: Callable[[Key], None]
    ) -> None:
        self._connection = connection
        self._context = context
        self._touch = touch
        self._loop = asyncio.get_running_loop()
        self._lookups: set[asyncio.Task[None]] = set()
        self._limited = RateLimitedLog(logger)

    def close(self) -> None:
        for lookup in self._lookups:
            lookup.cancel()

    def apply(self, followed: Followed, position: FetchPosition, fetched: FetchedPartition) -> None:
        partition = followed.partition
        following, log = partition.following, partition.log
        if following is None or position.leader_epoch != following.leader_epoch:
            return
        now_ms = self._context.clock.monotonic_ms()
        records, first_offset, end_offset = memoryview(b""), None, None
        try:
            if fetched.records and not fetched.error_code:
                records, first_offset, end_offset = whole_batches(
                    fetched.records, position.last_fetched_epoch, position.leader_epoch
                )
            event = follower_state.FetchAnswered(
                position,
                ErrorCode(fetched.error_code),
                fetched.high_watermark,
                fetched.log_start_offset,
                fetched.diverging_epoch,
                end_offset,
                first_offset,
            )
            instructions = follower_state.step(following, event, log, now_ms)
            self._carry_out(followed, instructions, records)
            if records and self._context.is_throttled(partition):
                self._context.partitions.follower_throttle.passed(len(records), now_ms)
        except KafkaError as error:
            self._failed(followed, position, error)
        if following.status is Status.FAILED:
            # Fenced: the metadata log is about to bring the new leader, as after any election.
            fenced = fetched.error_code == ErrorCode.fenced_leader_epoch
            level = logging.DEBUG if fenced else logging.WARNING
            name = log.topic_partition
            logger.log(level, "%s: not fetched any more: %s", name, following.failure)

    def _carry_out(
        self, followed: Followed, instructions: follower_state.Instructions, records: memoryview
    ) -> None:
        context, partition = self._context, followed.partition
        look_up = carry_out(
            partition, instructions, records, context.partitions, context.clock.now_ms()
        )
        if look_up is not None:
            task = self._loop.create_task(self._look_up(followed, look_up.position))
            self._lookups.add(task)
            task.add_done_callback(self._lookups.discard)
        elif instructions and partition.must_flush:
            self._flush(followed)

    def _failed(self, followed: Followed, position: FetchPosition, error: KafkaError) -> None:
        partition = followed.partition
        following = partition.following
        name, path = partition.topic_partition, partition.log.log_dir.path
        now_ms = self._context.clock.monotonic_ms()
        self._limited.error(path, now_ms, "%s: %s", name, error)
        code = error.code
        if isinstance(error, LogDirError):
            self._context.partitions.directory_failed(error)
        if isinstance(error, NoRoomError) or (isinstance(error, LogDirError) and not error.offline):
            code = ErrorCode.throttling_quota_exceeded  # retriable: asked again after a pause
        if following is not None:
            for event in (
                follower_state.FetchUnanswered(position, failed=False),
                follower_state.ApplyFailed(code, str(error)),
            ):
                follower_state.step(following, event, partition.log, now_ms)

    def _flush(self, followed: Followed) -> None:
        """`flush.messages`: the next fetch acknowledges the records, so fsync first."""
        followed.flushing = True

        def done(error: BaseException | None) -> None:
            followed.flushing = False
            if isinstance(error, LogDirError):
                self._context.partitions.directory_failed(error)
                if not error.offline and not followed.dropped:
                    followed.flushing = True
                    self._loop.call_later(RETRY_SECONDS, self._flush, followed)
                    return
            elif error is not None:
                raise error
            if not followed.dropped:
                self._touch(followed.key)

        self._context.threads.run(followed.partition.log.flush, done)

    # --- out of range -------------------------------------------------------------------------

    async def _look_up(self, followed: Followed, position: FetchPosition) -> None:
        """Where does the leader's log begin and end?"""
        try:
            start, end = await leader_offsets(
                self._connection,
                self._context.partitions.peers.node_id,
                followed.partition,
                position,
                self._context.settings.int("replica.socket.timeout.ms"),
            )
            event = follower_state.OffsetsFound(position, start, end)
        except PeerUnavailable:
            event = follower_state.OffsetsFound(position, error=ErrorCode.network_exception)
        except KafkaError as error:
            event = follower_state.OffsetsFound(position, error=error.code)
        following, log = followed.partition.following, followed.partition.log
        if following is None or followed.dropped:
            return
        now_ms = self._context.clock.monotonic_ms()
        try:
            self._carry_out(
                followed, follower_state.step(following, event, log, now_ms), memoryview(b"")
            )
        except KafkaError as error:
            self._failed(followed, position, error)
        self._touch(followed.key)
