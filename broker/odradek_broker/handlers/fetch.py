"""Fetch (1), v4–18: read record batches from partitions.

A fetch is answered at once if it finds min_bytes, an error, or max_wait_ms is 0; else it waits
in the purgatory of its partitions and is looked at again when one of them has more to read, or
when max_wait_ms is over. It never polls. Records are not read into memory: the answer holds
ranges of segment files, which the connection sends by sendfile.

Bounds: max_bytes for the answer (and the broker's fetch.max.bytes), partition_max_bytes for
each partition; the first batch of the first partition with data comes whole even if it is
larger, so that a consumer always gets on (KIP-74). Consumers read up to the high watermark, or
up to the last stable offset with read_committed.
"""

from typing import cast

from odradek_broker.handlers import fetch_session
from odradek_broker.handlers.context import Chunks, RequestContext
from odradek_broker.handlers.fetch_session import FetchSession, Key, SessionPartition
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.waiting import FetchTicket
from odradek_broker.wire.fetch import (
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


def serve(ctx: RequestContext, frame: bytearray, body_at: int) -> None:
    request = decode_fetch(ctx.api_version, frame, body_at)
    try:
        session, partitions = _session_of(ctx, request)
    except KafkaError as error:
        chunks, size = encode_fetch_response(
            ctx.api_version, ctx.correlation_id, 0, error.code, 0, ()
        )
        ctx.respond(cast(Chunks, chunks), size)
        return
    FetchCall(ctx, request, session, partitions).start()


def _session_of(
    ctx: RequestContext, request: FetchRequest
) -> tuple[FetchSession | None, dict[Key, SessionPartition]]:
    """The session that the request goes on with, if any, and the partitions to read."""
    sessions = ctx.broker.fetch_sessions
    now_ms = ctx.broker.clock.monotonic_ms()
    uses_topic_ids = ctx.api_version >= TOPIC_ID_FROM
    if request.session_epoch not in (fetch_session.INITIAL_EPOCH, fetch_session.FINAL_EPOCH):
        session = sessions.resume(request, uses_topic_ids, now_ms)
        if not session.partitions:
            sessions.close(session.id)
            return None, {}
        return session, session.partitions
    if request.session_id:
        sessions.close(request.session_id)
    return None, fetch_session.partitions_of(request)


class FetchCall(FetchTicket):
    """One fetch request until it is answered."""

    __slots__ = ("_ctx", "_partitions", "_request", "_session", "_watched")

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
        self._session = session
        self._partitions = partitions
        self._watched: list[Partition] = []

    def start(self) -> None:
        results, complete = self._read()
        if complete or self._request.max_wait_ms <= 0:
            self._answer(results)
            return
        service = self._ctx.broker.partitions
        for key in self._partitions:
            partition = self._hosted(key)
            if partition is not None:
                partition.fetch_waiters.add(self)
                self._watched.append(partition)
        self._ctx.on_disconnect = self._stop_waiting
        service.park(self, service.fetch_waiting)

    def on_progress(self) -> None:
        results, complete = self._read()
        if complete and not self.finished:
            self._stop_waiting()
            self._answer(results)

    def on_expired(self) -> None:
        self._stop_waiting()
        self._answer(self._read()[0])

    def _stop_waiting(self) -> None:
        self._ctx.broker.partitions.fetch_waiting.finish(self)
        for partition in self._watched:
            partition.fetch_waiters.discard(self)
        self._watched.clear()

    # --- reading -------------------------------------------------------------------------

    def _hosted(self, key: Key) -> Partition | None:
        topic, index = key
        partitions = self._ctx.broker.partitions
        if isinstance(topic, str):
            return partitions.by_name.get((topic, index))
        return partitions.by_id.get((topic, index))

    def _read(self) -> tuple[list[tuple[Key, FetchPartitionResult]], bool]:
        """What every partition has now, and whether that is enough to answer."""
        request = self._request
        fetch_max = self._ctx.broker.settings.int("fetch.max.bytes")
        left = min(request.max_bytes, fetch_max)
        total = 0
        complete = not self._partitions
        results: list[tuple[Key, FetchPartitionResult]] = []
        for key, entry in self._partitions.items():
            partition = self._hosted(key)
            try:
                if partition is None:
                    known_by_name = isinstance(key[0], str)
                    raise KafkaError(
                        ErrorCode.unknown_topic_or_partition
                        if known_by_name
                        else ErrorCode.unknown_topic_id
                    )
                result, length = self._read_one(partition, entry.asked, left, total == 0)
                total += length
                left -= length
                complete = complete or result.diverging_epoch is not None
            except KafkaError as error:
                result = FetchPartitionResult(key[1], error.code)
                complete = True
            results.append((key, result))
        return results, complete or total >= request.min_bytes

    def _read_one(
        self, partition: Partition, asked: FetchPartition, left: int, nothing_yet: bool
    ) -> tuple[FetchPartitionResult, int]:
        partition.check_leader_epoch(asked.current_leader_epoch)
        log = partition.log
        read_committed = self._request.isolation_level == 1
        stable = partition.last_fetchable_offset(read_committed=True)
        end = stable if read_committed else partition.high_watermark
        offset = asked.fetch_offset
        diverging = None
        if asked.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if epoch >= 0 and (epoch < asked.last_fetched_epoch or end_offset < offset):
                diverging = (epoch, end_offset)
        records = None
        aborted: list[tuple[int, int]] | None = [] if read_committed else None
        at_the_end = end <= offset <= log.log_end_offset
        if diverging is None and not at_the_end and (left > 0 or nothing_yet):
            limit = min(asked.partition_max_bytes, left)
            records, _ = log.read(offset, limit, end, min_one_batch=nothing_yet)
            if aborted is not None and records is not None:
                aborted.extend(log.aborted_transactions(offset, end))
        result = FetchPartitionResult(
            asked.partition,
            0,
            partition.high_watermark,
            stable,
            log.log_start_offset,
            aborted,
            -1,
            records if records is not None else b"",
            diverging,
        )
        return result, records.length if records is not None else 0

    # --- answering -----------------------------------------------------------------------

    def _answer(self, results: list[tuple[Key, FetchPartitionResult]]) -> None:
        session_id = 0
        if self._session is not None:
            results = self._only_changed(self._session, results)
            session_id = self._session.id
        elif self._request.session_epoch == fetch_session.INITIAL_EPOCH:
            session_id = self._open_session(results)
        topics: list[TopicResult] = []
        last_topic: str | bytes | None = None
        for key, result in results:
            self._count(key, result)
            topic = key[0]
            if topic == last_topic:
                topics[-1][2].append(result)  # type: ignore[attr-defined]
                continue
            name, topic_id = (topic, None) if isinstance(topic, str) else (None, topic)
            topics.append((name, topic_id, [result]))
            last_topic = topic
        ctx = self._ctx
        chunks, size = encode_fetch_response(
            ctx.api_version, ctx.correlation_id, 0, ErrorCode.none, session_id, topics
        )
        ctx.respond(cast(Chunks, chunks), size)

    def _only_changed(
        self, session: FetchSession, results: list[tuple[Key, FetchPartitionResult]]
    ) -> list[tuple[Key, FetchPartitionResult]]:
        changed = []
        for key, result in results:
            entry = session.partitions.get(key)
            if entry is None or not entry.changed(result):
                continue
            entry.remember(result)
            changed.append((key, result))
            if result.records:
                session.to_the_end(key)
        return changed

    def _open_session(self, results: list[tuple[Key, FetchPartitionResult]]) -> int:
        for key, result in results:
            self._partitions[key].remember(result)
        session = self._ctx.broker.fetch_sessions.open(
            self._partitions,
            privileged=self._request.replica_id >= 0,
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
