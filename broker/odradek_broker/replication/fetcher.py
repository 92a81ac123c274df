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

`replication/answers.py` applies an answer to one partition.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from itertools import islice

from odradek_broker.partition import follower_state
from odradek_broker.partition.follower_state import Status
from odradek_broker.partition.partition import Partition
from odradek_broker.replication.answers import AnswerApplier
from odradek_broker.replication.followed import FetcherContext, Followed, key_of
from odradek_broker.replication.leader_calls import (
    FETCH,
    FETCH_VERSION,
    LeaderConnection,
    encode_fetch,
    fetch_partition,
)
from odradek_broker.replication.session import FollowerSession, Key, SessionRequest
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.fetch_response import FetchedResponse, decode_fetch_response

logger = logging.getLogger(__name__)

# One that waits at the leader, and one that makes the leader answer it.
IN_FLIGHT_MAX = 2
# Partitions that one pass looks at, for 5 ms at most.
TOUCHED_PER_PASS = 500
# A throttled partition is looked at again after this time: the throttle may have been raised.
THROTTLED_MAX_MS = 1_000.0
# Not in any request yet.
NOT_SENT = 1 << 60
# Applying a large answer (CRCs, writes, truncations with their fsyncs) makes room for others
# after this long; heartbeats and clients live on the same loop.
TURN_MS = 5.0
# A bug that fails every pass must not keep the loop busy with logging it.
AFTER_BUG_SECONDS = 1.0


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
        self._followed: dict[Key, Followed] = {}
        self._touched: dict[Key, None] = {}
        self._session = FollowerSession()
        self._in_flight: deque[_InFlight] = deque()
        self._numbers = 0
        self._signal: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_ms = float("inf")
        self._pausing: dict[Key, None] = {}  # skipped until the timer fires
        self._failures = 0  # of the connection, in a row
        self._reconnect_at_ms = 0.0
        self._reachable = True
        self._applier = AnswerApplier(connection, context, self._touch)
        self._task = self._loop.create_task(self._run())

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, partition: Partition) -> bool:
        followed = self._followed.get(key_of(partition))
        return followed is not None and followed.partition is partition

    # --- which partitions ------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        following = partition.following
        if following is not None and following.under_way is not None:
            # Sent over a connection to the leader's old address.
            now_ms = self._context.clock.monotonic_ms()
            given_up = follower_state.FetchUnanswered(following.under_way, failed=False)
            follower_state.step(following, given_up, partition.log, now_ms)
        followed = Followed(partition)
        self._drop(followed.key)
        self._followed[followed.key] = followed
        self._touch(followed.key)

    def remove(self, partition: Partition) -> None:
        key = key_of(partition)
        followed = self._followed.get(key)
        if followed is not None and followed.partition is partition:
            self._drop(key)
            self._touch(key)

    def _drop(self, key: Key) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.dropped = True

    def close(self) -> None:
        """Give up: no fetch goes out any more, and no answer is applied."""
        self._task.cancel()
        self._applier.close()
        for sent in self._in_flight:
            sent.answer.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        for key in list(self._followed):
            self._drop(key)
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
        """Put the next fetches of touched partitions into the session, a bounded number."""
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
            followed = self._followed.get(key)
            following = followed.partition.following if followed is not None else None
            if followed is None or following is None or followed.flushing:
                self._session.forget(key)
                continue
            if self._context.is_throttled(followed.partition) and throttle.exceeded(now_ms):
                self._session.forget(key)
                self._pausing[key] = None
                self._wake_at(min(throttle.free_at_ms, now_ms + THROTTLED_MAX_MS))
                continue
            position = follower_state.next_fetch(following, followed.partition.log, now_ms)
            if position is not None:
                followed.position = position
                if self._session.want(key, fetch_partition(key[1], position, max_bytes)):
                    followed.sent_in = NOT_SENT
            elif following.under_way is None or following.status is not Status.FETCHING:
                self._session.forget(key)
                if following.status is Status.BACKING_OFF:
                    self._pausing[key] = None
                    self._wake_at(following.ready_at_ms)

    def _wake_at(self, at_ms: float) -> None:
        """One timer for all pauses: when it fires, every pausing partition is examined."""
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
        request = self._session.next_request()
        self._numbers += 1
        for key, _ in request.partitions:
            followed = self._followed.get(key)
            if followed is not None:
                followed.sent_in = self._numbers
        body = encode_fetch(request, self._context.partitions.peers, settings)
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
            # It evicted the session, or has another epoch of it: start a new session.
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
        """The leader's session is in an unknown state: pause, then open a new one."""
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
        """After a bug the state is uncertain: every partition pauses, then fetches again."""
        self._lost_connection("a bug")
        now_ms = self._context.clock.monotonic_ms()
        for key, followed in self._followed.items():
            following, position = followed.partition.following, followed.position
            if following is not None and position is not None:
                event = follower_state.FetchUnanswered(position, failed=True)
                follower_state.step(following, event, followed.partition.log, now_ms)
            self._touched[key] = None

    # --- answers ---------------------------------------------------------------------------------

    async def _apply(self, number: int, response: FetchedResponse) -> None:
        turn_ends_ms = self._context.clock.monotonic_ms() + TURN_MS
        for _, topic_id, partitions in response.topics:
            for fetched in partitions:
                followed = self._followed.get((topic_id or b"", fetched.partition_index))
                # The partition has a newer fetch: this response is out of date.
                if followed is None or followed.position is None or followed.sent_in > number:
                    continue
                self._applier.apply(followed, followed.position, fetched)
                self._touched[topic_id or b"", fetched.partition_index] = None
                if self._context.clock.monotonic_ms() >= turn_ends_ms:
                    await asyncio.sleep(0)
                    turn_ends_ms = self._context.clock.monotonic_ms() + TURN_MS


_SESSION_ERRORS = frozenset(
    [
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    ]
)
