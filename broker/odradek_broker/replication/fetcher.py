"""Fetches for all partitions that follow one leader: one connection, one session, one task.

Each pass of the task looks at the partitions that something happened to (`_touched`), sends a
request if the last one is answered, and applies the answers that came:

    add / remove ─┐
    a pause ends ─┼─► touched ─► next_fetch ─► session ─► request ─► leader
    an answer    ─┘                                        answer ─► step ─► log

A partition that an answer does not mention has nothing new; its fetch stays under way, since
the leader goes on with it by itself. So a pass costs as much as has changed, not as there are
partitions; and when thousands have changed, each pass takes some of them (TOUCHED_PER_PASS, and
`PER_REQUEST` of the session), with the loop's other work in between.

A connection that breaks concerns the fetcher, not its partitions: after a pause all that is wanted
is asked for again in a new session. A dead leader of ten thousand partitions costs a small request
now and then, until the metadata log names other leaders.

The leader holds a request back while it has nothing to say (replica.fetch.wait.max.ms). If
something is to be said meanwhile (a partition to fetch from now on), a second request follows
at once; the leader then answers the first one (handlers/fetch.py).

What fails for one partition (damaged data, no disk) concerns that one only.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

from odradek_broker.log.errors import RETRY_SECONDS, LogDirError, NoRoomError
from odradek_broker.partition import follower_state
from odradek_broker.partition.follower_state import FetchPosition, Status
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_broker.replication.applying import carry_out
from odradek_broker.replication.batches import whole_batches
from odradek_broker.replication.session import FollowerSession, Key, SessionRequest
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.runtime.rate_limited_log import RateLimitedLog
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tasks import Threads
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.fetch import FetchPartition, FetchRequest
from odradek_protocol.messages.fetch_response import (
    FetchedPartition,
    FetchedResponse,
    decode_fetch_response,
    encode_fetch_request,
)
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

T = TypeVar("T")

FETCH, FETCH_VERSION = 1, 17
LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 9
LATEST, EARLIEST = -1, -2
# One that the leader holds back, and one that makes it answer that.
IN_FLIGHT_MAX = 2
# Partitions that one pass looks at, for 5 ms at most.
TOUCHED_PER_PASS = 500
# Not in any request yet.
NOT_SENT = 1 << 60
# Applying a large answer (CRCs, writes, truncations with their fsyncs) makes room for others
# after this long; heartbeats and clients live on the same loop.
TURN_MS = 5.0
# A bug that shows at every pass must not keep the loop busy with saying so.
AFTER_BUG_SECONDS = 1.0


class LeaderConnection(Protocol):
    """`runtime.peer.Peer` is one."""

    def call_raw(
        self, api_key: int, version: int, body: Sequence[bytes], timeout_ms: float
    ) -> Awaitable[memoryview]: ...

    def call(
        self, api_key: int, version: int, request: Struct, timeout_ms: float
    ) -> Awaitable[Struct]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """What all fetchers of a broker share."""

    settings: Settings
    clock: Clock
    threads: Threads
    partitions: PartitionService


class _Entry:
    """One partition: what was asked for it last, and in which request."""

    __slots__ = ("flushing", "partition", "position", "sent_in")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.position: FetchPosition | None = None
        self.sent_in = -1
        self.flushing = False


@dataclass(slots=True)
class _InFlight:
    number: int
    request: SessionRequest
    answer: "asyncio.Future[memoryview]"


class LeaderFetcher:
    def __init__(
        self, leader: BrokerId, connection: LeaderConnection, context: FetcherContext
    ) -> None:
        self.leader = leader
        self._connection = connection
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._entries: dict[Key, _Entry] = {}
        self._touched: dict[Key, None] = {}
        self._session = FollowerSession()
        self._in_flight: deque[_InFlight] = deque()
        self._numbers = 0
        self._signal: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_ms = float("inf")
        self._pausing: dict[Key, None] = {}  # left out until the alarm rings
        self._failures = 0  # of the connection, in a row
        self._reconnect_at_ms = 0.0
        self._lookups: set[asyncio.Task[None]] = set()
        self._reachable = True
        self._limited = RateLimitedLog(logger)
        self._task = self._loop.create_task(self._run())

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, partition: Partition) -> bool:
        entry = self._entries.get(_key(partition))
        return entry is not None and entry.partition is partition

    # --- which partitions ------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        following = partition.following
        if following is not None and following.under_way is not None:
            # Asked through a connection to where the leader was before.
            now_ms = self._context.clock.monotonic_ms()
            given_up = follower_state.FetchUnanswered(following.under_way, failed=False)
            follower_state.step(following, given_up, partition.log, now_ms)
        key = _key(partition)
        self._entries[key] = _Entry(partition)
        self._touch(key)

    def remove(self, partition: Partition) -> None:
        key = _key(partition)
        entry = self._entries.get(key)
        if entry is not None and entry.partition is partition:
            del self._entries[key]
            self._touch(key)

    def close(self) -> None:
        """Give up: no fetch goes out any more, and no answer is applied."""
        self._task.cancel()
        for lookup in self._lookups:
            lookup.cancel()
        for sent in self._in_flight:
            sent.answer.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        self._entries.clear()
        self._connection.close()

    def _touch(self, key: Key) -> None:
        self._touched[key] = None
        self._wake()

    def _wake(self) -> None:
        if self._signal is not None and not self._signal.done():
            self._signal.set_result(None)

    # --- the task ----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._pass()
            except asyncio.CancelledError:
                raise
            except Exception:
                logger.exception("fetching from broker %d; this is a bug in Odradek", self.leader)
                self._begin_anew()
                await asyncio.sleep(AFTER_BUG_SECONDS)

    async def _pass(self) -> None:
        self._look_at_touched()
        if self._may_send():
            self._send()
        if self._in_flight and self._in_flight[0].answer.done():
            began_ms = self._context.clock.monotonic_ms()
            await self._take_answer(self._in_flight.popleft())
            if self._context.clock.monotonic_ms() - began_ms >= TURN_MS:
                await asyncio.sleep(0)
            return
        if self._touched:
            await asyncio.sleep(0)
            return
        self._signal = self._loop.create_future()
        await self._signal
        self._signal = None

    def _look_at_touched(self) -> None:
        """Ask the state of each what it wants now, and tell the session; of some, if many."""
        now_ms = self._context.clock.monotonic_ms()
        throttle = self._context.partitions.follower_throttle
        max_bytes = self._context.settings.int("replica.fetch.max.bytes")
        touched = self._touched
        if len(touched) > TOUCHED_PER_PASS:
            some = list(islice(touched, TOUCHED_PER_PASS))
            for key in some:
                del touched[key]
        else:
            some, self._touched = list(touched), {}
        for key in some:
            entry = self._entries.get(key)
            following = entry.partition.following if entry is not None else None
            if entry is None or following is None or entry.flushing:
                self._session.forget(key)
                continue
            if self._is_throttled(entry.partition) and throttle.exceeded(now_ms):
                self._session.forget(key)
                self._pausing[key] = None
                self._wake_at(throttle.free_at_ms)
                continue
            position = follower_state.next_fetch(following, entry.partition.log, now_ms)
            if position is not None:
                entry.position = position
                if self._session.want(key, _asked(key[1], position, max_bytes)):
                    entry.sent_in = NOT_SENT
            elif following.under_way is None or following.status is not Status.FETCHING:
                self._session.forget(key)
                if following.status is Status.BACKING_OFF:
                    self._pausing[key] = None
                    self._wake_at(following.ready_at_ms)

    def _is_throttled(self, partition: Partition) -> bool:
        service = self._context.partitions
        topic, index = partition.topic_partition
        return service.peers.node_id not in partition.isr and service.follower_throttle.concerns(
            service.image.topic_config(topic), index
        )

    def _wake_at(self, at_ms: float) -> None:
        """One timer for all pauses: when it rings, everybody who pauses is looked at."""
        if at_ms >= self._alarm_at_ms:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at_ms = at_ms
        delay_ms = max(0.0, at_ms - self._context.clock.monotonic_ms())
        self._alarm = self._loop.call_later(delay_ms / 1000.0, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self._alarm_at_ms = float("inf")
        self._touched.update(self._pausing)
        self._pausing.clear()
        self._wake()

    # --- requests ------------------------------------------------------------------------------

    def _may_send(self) -> bool:
        session = self._session
        if not self._in_flight:
            if self._context.clock.monotonic_ms() < self._reconnect_at_ms:
                return False
            return bool(session.wanted)
        return session.is_open and session.has_news and len(self._in_flight) < IN_FLIGHT_MAX

    def _send(self) -> None:
        settings = self._context.settings
        peers = self._context.partitions.peers
        request = self._session.next_request()
        self._numbers += 1
        for key, _ in request.partitions:
            entry = self._entries.get(key)
            if entry is not None:
                entry.sent_in = self._numbers
        body = encode_fetch_request(
            FETCH_VERSION,
            FetchRequest(
                replica_id=peers.node_id,
                replica_epoch=peers.broker_epoch,
                max_wait_ms=settings.int("replica.fetch.wait.max.ms"),
                min_bytes=settings.int("replica.fetch.min.bytes"),
                max_bytes=settings.int("replica.fetch.response.max.bytes"),
                isolation_level=0,
                session_id=request.session_id,
                session_epoch=request.epoch,
                topics=_by_topic(request.partitions),
                forgotten_topics=_by_topic([(key, key[1]) for key in request.forgotten]),
            ),
        )
        timeout_ms = settings.int("replica.socket.timeout.ms")
        answer = asyncio.ensure_future(
            self._connection.call_raw(FETCH, FETCH_VERSION, (body,), timeout_ms)
        )
        answer.add_done_callback(lambda _: self._wake())
        self._in_flight.append(_InFlight(self._numbers, request, answer))

    async def _take_answer(self, sent: _InFlight) -> None:
        try:
            response = decode_fetch_response(FETCH_VERSION, sent.answer.result())
        except (PeerUnavailable, DecodeError) as error:
            if sent.request.generation == self._session.generation:
                self._lost_connection(str(error))
            return
        if not self._reachable:
            logger.info("broker %d answers again", self.leader)
            self._reachable = True
        self._failures = 0
        if sent.request.generation != self._session.generation:
            return
        if response.error_code:
            # It forgot the session, or counts otherwise than we do: all over again.
            logger.info(
                "fetch session with broker %d ends: %s",
                self.leader,
                ErrorCode(response.error_code).name,
            )
            self._session.reset()
            if ErrorCode(response.error_code) not in _SESSION_ERRORS:
                self._lost_connection("refused")
            return
        if sent.request.epoch == 0:
            self._session.opened(response.session_id)
        elif not response.session_id:
            self._session.reset()  # nothing was left to fetch, so the leader closed it
        await self._apply(sent.number, response)

    def _lost_connection(self, reason: str) -> None:
        """Nobody knows what the leader took note of: after a pause everything is asked anew."""
        if self._reachable:
            logger.warning("fetching from broker %d: %s", self.leader, reason)
            self._reachable = False
        self._session.reset()
        pause_max_ms = float(self._context.settings.int("replica.fetch.backoff.ms"))
        pause_ms = follower_state.pause_after(self._failures, pause_max_ms)
        self._failures += 1
        self._reconnect_at_ms = self._context.clock.monotonic_ms() + pause_ms
        self._wake_at(self._reconnect_at_ms)

    def _begin_anew(self) -> None:
        """After a bug nothing is certain: every partition pauses, then asks anew."""
        self._lost_connection("a bug")
        now_ms = self._context.clock.monotonic_ms()
        for key, entry in self._entries.items():
            following, position = entry.partition.following, entry.position
            if following is not None and position is not None:
                event = follower_state.FetchUnanswered(position, failed=True)
                follower_state.step(following, event, entry.partition.log, now_ms)
            self._touched[key] = None

    # --- answers ---------------------------------------------------------------------------------

    async def _apply(self, number: int, response: FetchedResponse) -> None:
        turn_ends_ms = self._context.clock.monotonic_ms() + TURN_MS
        for _, topic_id, partitions in response.topics:
            for fetched in partitions:
                entry = self._entries.get((topic_id or b"", fetched.partition_index))
                # Asked otherwise since: this answers what nobody wants to know any more.
                if entry is None or entry.position is None or entry.sent_in > number:
                    continue
                self._apply_one(entry, entry.position, fetched)
                self._touched[topic_id or b"", fetched.partition_index] = None
                if self._context.clock.monotonic_ms() >= turn_ends_ms:
                    await asyncio.sleep(0)
                    turn_ends_ms = self._context.clock.monotonic_ms() + TURN_MS

    def _apply_one(self, entry: _Entry, position: FetchPosition, fetched: FetchedPartition) -> None:
        partition = entry.partition
        following, log = partition.following, partition.log
        if following is None or position.leader_epoch != following.leader_epoch:
            return
        now_ms = self._context.clock.monotonic_ms()
        records, end_offset = memoryview(b""), None
        try:
            if fetched.records and not fetched.error_code:
                records, end_offset = whole_batches(
                    fetched.records, position.last_fetched_epoch, position.leader_epoch
                )
            event = follower_state.FetchAnswered(
                position,
                ErrorCode(fetched.error_code),
                fetched.high_watermark,
                fetched.log_start_offset,
                fetched.diverging_epoch,
                end_offset,
            )
            instructions = follower_state.step(following, event, log, now_ms)
            self._carry_out(entry, instructions, records)
            if records and self._is_throttled(partition):
                self._context.partitions.follower_throttle.passed(len(records), now_ms)
        except KafkaError as error:
            self._failed(entry, position, error)
        if following.status is Status.FAILED:
            # Fenced: the metadata log is about to bring the new leader, as after any election.
            fenced = fetched.error_code == ErrorCode.fenced_leader_epoch
            level = logging.DEBUG if fenced else logging.WARNING
            name = log.topic_partition
            logger.log(level, "%s: not fetched any more: %s", name, following.failure)

    def _carry_out(
        self, entry: _Entry, instructions: follower_state.Instructions, records: memoryview
    ) -> None:
        context, partition = self._context, entry.partition
        look_up = carry_out(
            partition, instructions, records, context.partitions, context.clock.now_ms()
        )
        if look_up is not None:
            task = self._loop.create_task(self._look_up(entry, look_up.position))
            self._lookups.add(task)
            task.add_done_callback(self._lookups.discard)
        elif instructions and partition.must_flush:
            self._flush(entry)

    def _failed(self, entry: _Entry, position: FetchPosition, error: KafkaError) -> None:
        partition = entry.partition
        following = partition.following
        name, path = partition.topic_partition, partition.log.log_dir.path
        now_ms = self._context.clock.monotonic_ms()
        self._limited.error(path, now_ms, "%s: %s", name, error)
        code = error.code
        if isinstance(error, LogDirError):
            self._context.partitions.directory_failed(error)
        if isinstance(error, NoRoomError) or (isinstance(error, LogDirError) and not error.offline):
            code = ErrorCode.throttling_quota_exceeded  # passes: asked again after a pause
        if following is not None:
            for event in (
                follower_state.FetchUnanswered(position, failed=False),
                follower_state.ApplyFailed(code, str(error)),
            ):
                follower_state.step(following, event, partition.log, now_ms)

    def _flush(self, entry: _Entry) -> None:
        """`flush.messages`: the next fetch tells the leader that we have it, so fsync first."""
        entry.flushing = True
        key = _key(entry.partition)

        def done(error: BaseException | None) -> None:
            entry.flushing = False
            if isinstance(error, LogDirError):
                self._context.partitions.directory_failed(error)
                if not error.offline and self._entries.get(key) is entry:
                    entry.flushing = True
                    self._loop.call_later(RETRY_SECONDS, self._flush, entry)
                    return
            elif error is not None:
                raise error
            if self._entries.get(key) is entry:
                self._touch(key)

        self._context.threads.run(entry.partition.log.flush, done)

    # --- out of range -------------------------------------------------------------------------

    async def _look_up(self, entry: _Entry, position: FetchPosition) -> None:
        """Where does the leader's log begin and end?"""
        try:
            start, end = [
                await self._list_offset(entry.partition, position, timestamp)
                for timestamp in (EARLIEST, LATEST)
            ]
            event = follower_state.OffsetsFound(position, start, end)
        except PeerUnavailable:
            event = follower_state.OffsetsFound(position, error=ErrorCode.network_exception)
        except KafkaError as error:
            event = follower_state.OffsetsFound(position, error=error.code)
        following, log = entry.partition.following, entry.partition.log
        if following is None or self._entries.get(_key(entry.partition)) is not entry:
            return
        now_ms = self._context.clock.monotonic_ms()
        try:
            self._carry_out(
                entry, follower_state.step(following, event, log, now_ms), memoryview(b"")
            )
        except KafkaError as error:
            self._failed(entry, position, error)
        self._touch(_key(entry.partition))

    async def _list_offset(
        self, partition: Partition, position: FetchPosition, timestamp: int
    ) -> int:
        topic, index = partition.topic_partition
        asked = Struct(
            partition_index=index, current_leader_epoch=position.leader_epoch, timestamp=timestamp
        )
        response = await self._connection.call(
            LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            Struct(
                replica_id=self._context.partitions.peers.node_id,
                isolation_level=0,
                topics=[Struct(name=topic, partitions=[asked])],
            ),
            self._context.settings.int("replica.socket.timeout.ms"),
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        return int(answer.offset)


_SESSION_ERRORS = frozenset(
    [
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    ]
)


def _key(partition: Partition) -> Key:
    return partition.topic_id, partition.topic_partition.partition


def _asked(index: int, position: FetchPosition, max_bytes: int) -> FetchPartition:
    return FetchPartition(
        index,
        position.leader_epoch,
        position.fetch_offset,
        position.last_fetched_epoch,
        position.log_start_offset,
        max_bytes,
    )


def _by_topic(items: list[tuple[Key, T]]) -> list[tuple[str | None, bytes | None, list[T]]]:
    """Grouped as requests want it."""
    topics: dict[bytes, list[T]] = {}
    for (topic_id, _), item in items:
        topics.setdefault(topic_id, []).append(item)
    return [(None, topic_id, found) for topic_id, found in topics.items()]
