"""Fetch (1), v4–18: read record batches from partitions. For consumers and for followers.

A fetch is answered at once if it finds min_bytes, an error, or max_wait_ms is 0; else it waits
in the purgatory of its partitions and is looked at again when one of them has more to read, or
when max_wait_ms is over. It never polls. Records are not read into memory: the answer holds
ranges of segment files, which the connection sends by sendfile.

Bounds: max_bytes for the answer (and the broker's fetch.max.bytes), partition_max_bytes for
each partition; the first batch of the first partition with data comes whole even if it is
larger, so that a consumer always gets on (KIP-74).

    consumers  read up to the high watermark, or up to the last stable offset (read_committed);
               from the leader, or since v11 from a follower. The leader sends one that told its
               rack to a follower there (KIP-392, replica.selector.class).
    followers  (replica_id >= 0, only on the inter-broker listener) read up to what is written.
               Their fetch offset acknowledges all before it, see partition/replica_state.py.
               A new high watermark ends their wait, too: they serve consumers.
"""

from collections.abc import Collection, Container, Iterable, Sequence
from typing import cast

from odradek_broker.handlers import fetch_metadata, fetch_session
from odradek_broker.handlers.context import Chunks, RequestContext
from odradek_broker.handlers.fetch_session import FetchSession, Key, SessionPartition
from odradek_broker.handlers.leader_hints import LEADER_ERRORS, current_leader, endpoints
from odradek_broker.log.types import FileRange
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.read_replica import RACK_AWARE, preferred_read_replica
from odradek_broker.partition.replica_state import FollowerFetched, FollowerStopped
from odradek_broker.partition.waiting import ProgressListener, Ticket
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, Offset
from odradek_protocol.messages.fetch import (
    TOPIC_ID_FROM,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    TopicResult,
    decode_fetch,
    encode_fetch_response,
)

API_KEY = 1
VERSIONS = range(4, 19)

UNKNOWN = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)
# Older consumers know nothing of followers that serve them.
FOLLOWER_FETCHING_FROM = 11
# Partitions that one answer of a session is about, if more have moved: some 5 ms of work.
FRESH_MAX = 500


def serve(ctx: RequestContext, frame: bytes, body_at: int) -> None:
    request = decode_fetch(ctx.api_version, frame, body_at)
    if fetch_metadata.is_for_metadata(request):
        fetch_metadata.serve(ctx, request)
        return
    if not ctx.broker.serves_clients:
        ctx.disconnect("the broker is starting")
        ctx.respond([], 0)
        return
    try:
        if request.replica_id >= 0:
            _check_follower(ctx)
            ctx.is_of_broker()
        session, partitions = _session_of(ctx, request)
    except KafkaError as error:
        chunks, size = encode_fetch_response(
            ctx.api_version, ctx.correlation_id, 0, error.code, 0, ()
        )
        ctx.respond(cast(Chunks, chunks), size)
        return
    FetchCall(ctx, request, session, partitions).start()


def _check_follower(ctx: RequestContext) -> None:
    """A client that poses as a replica could make the broker believe that data is safe."""
    if ctx.listener != ctx.broker.settings.listeners.inter_broker_name:
        raise KafkaError(ErrorCode.cluster_authorization_failed)


def _session_of(
    ctx: RequestContext, request: FetchRequest
) -> tuple[FetchSession | None, dict[Key, SessionPartition]]:
    """The session that the request goes on with, if any, and the partitions to read."""
    sessions = ctx.broker.fetch_sessions
    now_ms = ctx.broker.clock.monotonic_ms()
    uses_topic_ids = ctx.api_version >= TOPIC_ID_FROM
    if request.session_epoch not in (fetch_session.INITIAL_EPOCH, fetch_session.FINAL_EPOCH):
        session = sessions.resume(request, uses_topic_ids, now_ms)
        if request.forgotten_topics and request.replica_id >= 0:
            _note_stopped(ctx, request)
        if not session.partitions:
            sessions.close(session.id)
            return None, {}
        return session, session.partitions
    if request.session_id:
        sessions.close(request.session_id)
    return None, fetch_session.partitions_of(request)


def _note_stopped(ctx: RequestContext, request: FetchRequest) -> None:
    """Partitions that a follower does not fetch any more: it must not join their ISRs."""
    partitions = ctx.broker.partitions
    stopped = FollowerStopped(BrokerId(request.replica_id))
    for name, topic_id, indexes in request.forgotten_topics:
        for index in indexes:
            if name is not None:
                partition = partitions.by_name.get((name, index))
            else:
                partition = partitions.by_id.get((topic_id or b"", index))
            if partition is not None:
                partitions.step(partition, stopped)


class FetchCall(Ticket):
    """One fetch request until it is answered."""

    __slots__ = (
        "_bytes",
        "_crowded_out",
        "_ctx",
        "_from_follower",
        "_partitions",
        "_request",
        "_results",
        "_session",
        "_watched",
    )

    def __init__(
        self,
        ctx: RequestContext,
        request: FetchRequest,
        session: FetchSession | None,
        partitions: dict[Key, SessionPartition],
    ) -> None:
        super().__init__(ctx.broker.clock.monotonic_ms() + max(request.max_wait_ms, 0))
        self._ctx = ctx
        self._request = request
        self._from_follower = request.replica_id >= 0
        self._session = session
        self._partitions = partitions
        self._results: dict[Key, FetchPartitionResult] = {}
        self._bytes = 0  # of records in the results
        self._crowded_out: set[Key] = set()  # had records, but others came first
        self._watched: list[set[ProgressListener]] = []  # without a session

    def start(self) -> None:
        session = self._session
        if session is None:
            complete = self._read(self._partitions, named=self._partitions)
        else:
            complete = self._read_fresh(session, named=fetch_session.partitions_of(self._request))
        if complete or self._request.max_wait_ms <= 0:
            self._answer()
            return
        if session is not None:
            session.waiting = self
        else:
            for key in self._partitions:
                partition = self._hosted(key)
                if partition is not None:
                    waiters = self._waiters(partition)
                    waiters.add(self)
                    self._watched.append(waiters)
        self._ctx.on_disconnect = self._stop_waiting
        service = self._ctx.broker.partitions
        service.park(self, service.fetch_waiting)

    def on_progress(self, partitions: Sequence[Partition]) -> None:
        if self.finished:
            return
        if self._session is not None:
            complete = self._read_fresh(self._session)
        elif self._bytes:
            # What was read before takes part in the limits: begin again.
            self._bytes = 0
            complete = self._read(self._partitions)
        elif self._ctx.api_version >= TOPIC_ID_FROM:
            complete = self._read(
                (one.topic_id, one.topic_partition.partition) for one in partitions
            )
        else:
            complete = self._read(one.topic_partition for one in partitions)
        if complete:
            self.answer_now()

    def answer_now(self) -> None:
        self._stop_waiting()
        self._answer()

    def on_expired(self) -> None:
        self.answer_now()

    def _stop_waiting(self) -> None:
        self._ctx.broker.partitions.fetch_waiting.finish(self)
        if self._session is not None:
            self._session.waiting = None
        for waiters in self._watched:
            waiters.discard(self)
        self._watched.clear()

    # --- reading -------------------------------------------------------------------------

    def _hosted(self, key: Key) -> Partition | None:
        topic, index = key
        partitions = self._ctx.broker.partitions
        if isinstance(topic, str):
            return partitions.by_name.get((topic, index))
        return partitions.by_id.get((topic, index))

    def _waiters(self, partition: Partition) -> set[ProgressListener]:
        return partition.follower_waiters if self._from_follower else partition.fetch_waiters

    def _read_fresh(self, session: FetchSession, named: Collection[Key] = ()) -> bool:
        """Look at the partitions of a session that are worth it; True if that is enough.

        If they are many, the answer may be about the first of them and those that the request
        names; the others stay fresh for the next request, which comes at once.
        """
        self._bytes = 0  # all that has records is looked at again
        keys = list(session.fresh)
        if len(keys) <= FRESH_MAX:
            return self._read_some(session, keys, named)
        first = dict.fromkeys(keys[:FRESH_MAX])
        first.update(dict.fromkeys(key for key in named if key in session.fresh))
        rest = [key for key in keys if key not in first]
        complete = self._read_some(session, list(first), named)
        for at in range(0, len(rest), FRESH_MAX):
            if complete:
                break
            complete = self._read_some(session, rest[at : at + FRESH_MAX])
        return complete

    def _read_some(
        self, session: FetchSession, keys: list[Key], named: Container[Key] = ()
    ) -> bool:
        for key in keys:
            del session.fresh[key]
        complete = self._read(keys, named=named)
        served = []
        for key in keys:
            result = self._results[key]
            if result.error_code or result.records:
                served.append(key)
            elif key in self._crowded_out:
                session.fresh[key] = None
            partition = self._hosted(key)
            if partition is not None:
                session.listen(session.partitions[key], self._waiters(partition))
        session.fresh.update(dict.fromkeys(served))
        return complete

    def _read(self, keys: Iterable[Key], *, named: Container[Key] = ()) -> bool:
        """Look at these partitions; True if there is enough for an answer.

        Only for those that the request names (not if a session goes on with them, nor if they
        are looked at again) a follower has said anything.
        """
        request = self._request
        fetch_max = self._ctx.broker.settings.int("fetch.max.bytes")
        left = min(request.max_bytes, fetch_max) - self._bytes
        self._crowded_out.clear()
        complete = not self._partitions
        for key in keys:
            entry = self._partitions.get(key)
            if entry is None:
                continue
            partition = self._hosted(key)
            try:
                if partition is None:
                    raise KafkaError(self._ctx.broker.partitions.why_missing(*key))
                if self._from_follower:
                    result, end = self._read_for_follower(partition, entry, left, says=key in named)
                else:
                    result, end = self._read_for_consumer(partition, entry.asked, left)
                length = getattr(result.records, "length", 0)
                if not length and entry.asked.fetch_offset < end:
                    self._crowded_out.add(key)
                self._bytes += length
                left -= length
                complete = complete or self._says_enough(entry, result)
            except KafkaError as error:
                result = self._refusal(key, error.code)
                complete = True
            self._results[key] = result
        return complete or self._bytes >= request.min_bytes

    def _says_enough(self, entry: SessionPartition, result: FetchPartitionResult) -> bool:
        """News that are not to be held back, whether there are records or not."""
        if result.diverging_epoch is not None or result.preferred_read_replica >= 0:
            return True
        in_session = self._request.session_epoch != fetch_session.FINAL_EPOCH
        return (
            self._from_follower
            and in_session
            and (
                result.high_watermark != entry.sent_high_watermark
                or result.log_start_offset != entry.sent_log_start_offset
            )
        )

    def _refusal(self, key: Key, code: ErrorCode) -> FetchPartitionResult:
        # As in Kafka: what is not there has no aborted transactions, for the rest that is not said.
        aborted = () if code in UNKNOWN else None
        result = FetchPartitionResult(key[1], code, aborted_transactions=aborted)
        if code in LEADER_ERRORS:
            result = result._replace(current_leader=current_leader(self._ctx, *key))
        return result

    def _read_for_follower(
        self, partition: Partition, entry: SessionPartition, left: int, *, says: bool
    ) -> tuple[FetchPartitionResult, Offset]:
        """What it gets, and up to where there is something to read."""
        asked = entry.asked
        partition.led_here(asked.current_leader_epoch)
        if asked.current_leader_epoch < 0:
            # It says nothing of what it knows, so it cannot acknowledge anything.
            known = partition.leading is not None and (
                self._request.replica_id in partition.leading.followers
            )
            raise KafkaError(
                ErrorCode.invalid_request if known else ErrorCode.not_leader_or_follower
            )
        log = partition.log
        diverging = _divergence(partition, asked)
        records = None
        if diverging is None:
            if not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset:
                raise KafkaError(ErrorCode.offset_out_of_range)
            if says:
                self._ctx.broker.partitions.step(
                    partition,
                    FollowerFetched(
                        BrokerId(self._request.replica_id),
                        self._request.replica_epoch,
                        asked.fetch_offset,
                        asked.log_start_offset,
                        log.written_offset,
                    ),
                )
            if asked.fetch_offset < log.written_offset:
                records = self._records_for_follower(partition, asked, left)
        return _result(partition, asked, records, diverging), log.written_offset

    def _records_for_follower(
        self, partition: Partition, asked: FetchPartition, left: int
    ) -> FileRange | None:
        service, now_ms = self._ctx.broker.partitions, self._ctx.broker.clock.monotonic_ms()
        throttle, topic_partition = service.leader_throttle, partition.topic_partition
        throttled = self._request.replica_id not in partition.isr and throttle.concerns(
            service.image.topic_config(topic_partition.topic), topic_partition.partition
        )
        if throttled and throttle.exceeded(now_ms):
            return None
        records, _ = self._records(partition, asked, left, partition.log.written_offset)
        if throttled and records is not None:
            throttle.passed(records.length, now_ms)
        return records

    def _read_for_consumer(
        self, partition: Partition, asked: FetchPartition, left: int
    ) -> tuple[FetchPartitionResult, Offset]:
        """What it gets, and up to where there is something to read."""
        self._check_readable(partition, asked)
        log = partition.log
        read_committed = self._request.isolation_level == 1
        end = partition.last_fetchable_offset(read_committed)
        diverging = _divergence(partition, asked)
        aborted: list[tuple[int, int]] | None = [] if read_committed else None
        if diverging is not None:
            return _result(partition, asked, None, diverging, aborted), end
        preferred = self._preferred_replica(partition, asked)
        if preferred is not None:
            result = _result(partition, asked, None, None, aborted)
            return result._replace(preferred_read_replica=preferred), end
        records = None
        at_the_end = end <= asked.fetch_offset <= log.log_end_offset
        if not at_the_end:
            records, first = self._records(partition, asked, left, end)
            if aborted is not None and records is not None:
                aborted.extend(log.aborted_in(records, first, asked.fetch_offset, end))
        return _result(partition, asked, records, None, aborted), end

    def _check_readable(self, partition: Partition, asked: FetchPartition) -> None:
        """Consumers read from the leader, or from a follower if they know of such things."""
        # In a fetch (and only there) any number below zero says that no epoch is known.
        partition.check_leader_epoch(max(asked.current_leader_epoch, -1))
        if partition.leading is None and (
            partition.following is None or self._ctx.api_version < FOLLOWER_FETCHING_FROM
        ):
            raise KafkaError(ErrorCode.not_leader_or_follower)

    def _preferred_replica(self, partition: Partition, asked: FetchPartition) -> BrokerId | None:
        rack, broker = self._request.rack_id, self._ctx.broker
        if not rack or partition.leading is None:
            return None
        if broker.settings.optional_str("replica.selector.class") != RACK_AWARE:
            return None
        image = broker.partitions.image
        return preferred_read_replica(
            partition.leading, image, rack, self._ctx.listener, asked.fetch_offset
        )

    def _records(
        self, partition: Partition, asked: FetchPartition, left: int, end: int
    ) -> tuple[FileRange | None, Offset]:
        """The records, and the offset of the first."""
        nothing_yet = self._bytes == 0
        if left <= 0 and not nothing_yet:
            return None, -1
        limit = min(asked.partition_max_bytes, left)
        return partition.log.read(asked.fetch_offset, limit, end, min_one_batch=nothing_yet)

    # --- answering -----------------------------------------------------------------------

    def _answer(self) -> None:
        session_id = 0
        results: Iterable[tuple[Key, FetchPartitionResult]] = self._results.items()
        if self._session is not None:
            results = self._only_changed(self._session)
            session_id = self._session.id
        elif self._request.session_epoch == fetch_session.INITIAL_EPOCH:
            session_id = self._open_session()
        topics: list[TopicResult] = []
        last_topic: str | bytes | None = None
        for key, result in results:
            if not self._from_follower:
                self._count(key, result)
            topic = key[0]
            if topic == last_topic:
                topics[-1][2].append(result)  # type: ignore[attr-defined]
                continue
            name, topic_id = (topic, None) if isinstance(topic, str) else (None, topic)
            topics.append((name, topic_id, [result]))
            last_topic = topic
        ctx = self._ctx
        hints = [result.current_leader for result in self._results.values() if result.error_code]
        chunks, size = encode_fetch_response(
            ctx.api_version,
            ctx.correlation_id,
            0,
            ErrorCode.none,
            session_id,
            topics,
            endpoints(ctx, hints) if hints else (),
        )
        ctx.respond(cast(Chunks, chunks), size)

    def _only_changed(self, session: FetchSession) -> list[tuple[Key, FetchPartitionResult]]:
        changed = []
        for key, result in self._results.items():
            entry = session.partitions.get(key)
            if entry is None or not entry.changed(result):
                continue
            entry.remember(result)
            changed.append((key, result))
        return changed

    def _open_session(self) -> int:
        for key, result in self._results.items():
            self._partitions[key].remember(result)
        session = self._ctx.broker.fetch_sessions.open(
            self._partitions,
            privileged=self._from_follower,
            uses_topic_ids=self._ctx.api_version >= TOPIC_ID_FROM,
            now_ms=self._ctx.broker.clock.monotonic_ms(),
        )
        return session.id if session is not None else 0

    def _count(self, key: Key, result: FetchPartitionResult) -> None:
        partition = self._hosted(key)
        if partition is None:
            return  # names that a client made up do not become metrics
        metrics = self._ctx.broker.metrics.topic(partition.topic_partition.topic)
        metrics.total_fetch_requests += 1
        if result.error_code:
            metrics.failed_fetch_requests += 1
        elif result.records:
            metrics.bytes_out += getattr(result.records, "length", 0)


def _divergence(partition: Partition, asked: FetchPartition) -> tuple[int, int] | None:
    """Where the reader's log parts from ours, if it does (KIP-320, KIP-595)."""
    epoch_asked = asked.last_fetched_epoch
    if epoch_asked < 0:
        return None
    epoch, end_offset = partition.log.end_offset_for_epoch(epoch_asked)
    # No epoch known, or nothing that is so old: then the offset is out of range.
    if epoch < 0 or asked.fetch_offset < partition.log.log_start_offset:
        raise KafkaError(ErrorCode.offset_out_of_range)
    if epoch < epoch_asked or end_offset < asked.fetch_offset:
        return epoch, end_offset
    return None


def _result(
    partition: Partition,
    asked: FetchPartition,
    records: FileRange | None,
    diverging: tuple[int, int] | None,
    aborted: list[tuple[int, int]] | None = None,
) -> FetchPartitionResult:
    return FetchPartitionResult(
        asked.partition,
        0,
        partition.high_watermark,
        partition.last_fetchable_offset(read_committed=True),
        partition.log.log_start_offset,
        aborted,
        -1,
        records if records is not None else b"",
        diverging,
    )
