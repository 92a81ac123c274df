"""Fetch (1), v4–18: read record batches from partitions. For consumers and for followers.

A fetch is answered at once if it finds min_bytes or an error, or if max_wait_ms is 0. Otherwise it
waits: it subscribes to its partitions and reads again when one of them has made progress, or it
is answered when max_wait_ms is over. It never polls. Records are not read into memory: the response
holds ranges of segment files, which the connection sends with sendfile.

Limits: max_bytes for the response (and the broker's fetch.max.bytes), partition_max_bytes for each
partition. The first batch of the first partition with records is returned whole even if it is
larger, so that a consumer always makes progress (KIP-74).

    fetch.py            one request: from reading to waiting to the response
    fetch_session.py    sessions: which partitions are worth a read, and what the client knows
    fetch_consumer.py   reads up to the high watermark or the last stable offset
    fetch_follower.py   reads up to the end of the log, and acknowledgements
    fetch_records.py    common to both; fetch_throttle.py, fetch_metrics.py
"""

from collections.abc import Collection, Container, Iterable, Sequence
from typing import cast

from odradek_broker.handlers import fetch_metadata, fetch_session
from odradek_broker.handlers.authorization import is_of_cluster
from odradek_broker.handlers.context import Chunks, RequestContext
from odradek_broker.handlers.fetch_consumer import read_for_consumer
from odradek_broker.handlers.fetch_follower import check_sender, note_stopped, read_for_follower
from odradek_broker.handlers.fetch_metrics import count_fetch
from odradek_broker.handlers.fetch_records import Budget, by_topic, length_of
from odradek_broker.handlers.fetch_session import FetchSession, Key, SessionPartition
from odradek_broker.handlers.leader_hints import LEADER_ERRORS, current_leader, endpoints
from odradek_broker.handlers.throttling import fetch_bytes_max, throttle_fetch
from odradek_broker.handlers.topic_access import TopicAccess
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.waiting import Ticket
from odradek_protocol.acl_codes import AclOperation
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset
from odradek_protocol.messages.fetch import (
    TOPIC_ID_FROM,
    FetchPartitionResult,
    FetchRequest,
    decode_fetch,
    encode_fetch_response,
)

API_KEY = 1
VERSIONS = range(4, 19)

# As in Kafka: these come with an empty list of aborted transactions, other errors with null.
EMPTY_LIST = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.topic_authorization_failed,
)
# Partitions that one response of a session is about, if more have moved: some 5 ms of work.
FRESH_MAX = 500


def serve(ctx: RequestContext, frame: bytes, body_at: int) -> None:
    request = decode_fetch(ctx.api_version, frame, body_at)
    if fetch_metadata.is_for_metadata(request):
        if ctx.broker.authorizer is not None and not is_of_cluster(ctx):
            _refuse(ctx, ErrorCode.cluster_authorization_failed)
            return
        fetch_metadata.serve(ctx, request)
        return
    if ctx.listener in ctx.broker.settings.listeners.controller_names:
        _refuse(ctx, ErrorCode.invalid_request)  # it has only the metadata log, as in Kafka
        return
    if not ctx.broker.serves_clients:
        ctx.disconnect("the broker is starting")
        ctx.respond([], 0)
        return
    is_follower = False
    try:
        if request.replica_id >= 0:
            check_sender(ctx)
            # A client without the right is refused for each partition, and changes nothing here.
            is_follower = ctx.broker.authorizer is None or is_of_cluster(ctx)
        if is_follower:
            ctx.is_of_broker()
        uses_topic_ids = ctx.api_version >= TOPIC_ID_FROM
        session, partitions = ctx.broker.fetch_sessions.find(
            request, uses_topic_ids, ctx.broker.clock.monotonic_ms()
        )
        if is_follower and fetch_session.is_incremental(request):
            note_stopped(ctx.broker, request)
    except KafkaError as error:
        _refuse(ctx, error.code)
        return
    FetchCall(ctx, request, session, partitions, is_follower=is_follower).start()


def _refuse(ctx: RequestContext, code: ErrorCode) -> None:
    chunks, size = encode_fetch_response(ctx.api_version, ctx.correlation_id, 0, code, 0, ())
    ctx.respond(cast(Chunks, chunks), size)


class FetchCall(Ticket):
    """One fetch request until it is answered."""

    __slots__ = (
        "_bytes",
        "_crowded_out",
        "_ctx",
        "_from_follower",
        "_is_follower",
        "_partitions",
        "_request",
        "_results",
        "_session",
        "_subscribed",
    )

    def __init__(
        self,
        ctx: RequestContext,
        request: FetchRequest,
        session: FetchSession | None,
        partitions: dict[Key, SessionPartition],
        *,
        is_follower: bool,
    ) -> None:
        super().__init__(ctx.broker.clock.monotonic_ms() + max(request.max_wait_ms, 0))
        self._ctx = ctx
        self._request = request
        self._from_follower = request.replica_id >= 0
        self._is_follower = is_follower  # it has the right to be one
        self._session = session
        self._partitions = partitions
        self._results: dict[Key, FetchPartitionResult] = {}
        self._bytes = 0  # of records in the results
        self._crowded_out: set[Key] = set()  # had records, but the response had no room for them
        self._subscribed: list[Partition] = []  # without a session, which subscribes itself

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
                    partition.subscribe(self, follower=self._from_follower)
                    self._subscribed.append(partition)
        self._ctx.on_disconnect = self._stop_waiting
        service = self._ctx.broker.partitions
        service.park(self, service.fetch_waiting)

    def on_progress(self, partitions: Sequence[Partition]) -> None:
        if self.finished:
            return
        if self._session is not None:
            complete = self._read_fresh(self._session)
        elif self._bytes:
            # The records that were read before count towards the limits: start again.
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
        for partition in self._subscribed:
            partition.unsubscribe(self)
        self._subscribed.clear()

    # --- reading -------------------------------------------------------------------------

    def _hosted(self, key: Key) -> Partition | None:
        topic, index = key
        partitions = self._ctx.broker.partitions
        if isinstance(topic, str):
            return partitions.by_name.get((topic, index))
        return partitions.by_id.get((topic, index))

    def _read_fresh(self, session: FetchSession, named: Collection[Key] = ()) -> bool:
        """Read the fresh partitions of a session; True if there is enough for a response.

        If there are many, the response may be about the first of them and those that the request
        names; the others stay fresh for the next request, which comes at once.
        """
        self._bytes = 0  # every partition that has records is read again
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
                session.listen(session.partitions[key], partition)
        session.fresh.update(dict.fromkeys(served))
        return complete

    def _read(self, keys: Iterable[Key], *, named: Container[Key] = ()) -> bool:
        """Read these partitions; True if there is enough for a response.

        `named` has the partitions that the request names. Only for those has a follower sent a new
        fetch offset: not for others of its session, nor when a partition is read again.
        """
        request = self._request
        fetch_max = min(request.max_bytes, self._ctx.broker.settings.int("fetch.max.bytes"))
        if self._is_limited:
            fetch_max = fetch_bytes_max(self._ctx, fetch_max)
        budget = Budget(fetch_max, self._bytes)
        self._crowded_out.clear()
        complete = not self._partitions
        access: TopicAccess | None = None
        refused = False
        if self._ctx.broker.authorizer is not None:
            if self._from_follower:
                refused = not is_of_cluster(self._ctx)
            else:
                access = TopicAccess(self._ctx, AclOperation.READ)
        for key in keys:
            entry = self._partitions.get(key)
            if entry is None:
                continue
            partition = self._hosted(key)
            try:
                if refused or (access is not None and not access.allows(*key)):
                    raise KafkaError(ErrorCode.topic_authorization_failed)
                if partition is None:
                    raise KafkaError(self._ctx.broker.partitions.why_missing(*key))
                result, end = self._read_one(partition, entry, budget, acknowledges=key in named)
                length = length_of(result.records)
                if not length and entry.asked.fetch_offset < end:
                    self._crowded_out.add(key)
                budget.spend(length)
                complete = complete or self._ends_wait(entry, result)
            except KafkaError as error:
                result = self._refusal(key, error.code)
                complete = True
            self._results[key] = result
        self._bytes = budget.used_bytes
        return complete or self._bytes >= min(request.min_bytes, fetch_max)

    def _read_one(
        self, partition: Partition, entry: SessionPartition, budget: Budget, *, acknowledges: bool
    ) -> tuple[FetchPartitionResult, Offset]:
        ctx, request = self._ctx, self._request
        if self._from_follower:
            return read_for_follower(
                ctx.broker, request, partition, entry.asked, budget, acknowledges=acknowledges
            )
        return read_for_consumer(ctx, request, partition, entry.asked, budget)

    def _ends_wait(self, entry: SessionPartition, result: FetchPartitionResult) -> bool:
        """The client should learn this at once, whether there are records or not."""
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
        aborted = () if code in EMPTY_LIST else None
        result = FetchPartitionResult(key[1], code, aborted_transactions=aborted)
        if code in LEADER_ERRORS:
            result = result._replace(current_leader=current_leader(self._ctx, *key))
        return result

    # --- answering -----------------------------------------------------------------------

    @property
    def _is_limited(self) -> bool:
        """Quotas exist, and apply: replication is never throttled by client quotas."""
        return self._ctx.broker.quotas.limited and not self._from_follower

    def _answer(self) -> None:
        if self._is_limited:
            throttle_ms = throttle_fetch(self._ctx, self._bytes)
            if throttle_ms > 0:
                self._answer_empty(throttle_ms)
                return
        session_id = 0
        results: Collection[tuple[Key, FetchPartitionResult]] = self._results.items()
        if self._session is not None:
            results = self._session.take_changed(self._results)
            session_id = self._session.id
        elif self._request.session_epoch == fetch_session.INITIAL_EPOCH:
            session_id = self._open_session()
        if not self._from_follower:
            for key, result in results:
                count_fetch(self._ctx.broker, self._hosted(key), result)
        ctx = self._ctx
        hints = [result.current_leader for result in self._results.values() if result.error_code]
        chunks, size = encode_fetch_response(
            ctx.api_version,
            ctx.correlation_id,
            0,
            ErrorCode.none,
            session_id,
            by_topic(results),
            endpoints(ctx, hints) if hints else (),
        )
        ctx.respond(cast(Chunks, chunks), size)

    def _answer_empty(self, throttle_ms: int) -> None:
        """The client has to fetch again, after the pause; what was read stays fresh for it."""
        ctx, session = self._ctx, self._session
        if session is not None:
            session.fresh.update(dict.fromkeys(self._results))
        session_id = session.id if session is not None else 0
        chunks, size = encode_fetch_response(
            ctx.api_version, ctx.correlation_id, throttle_ms, ErrorCode.none, session_id, ()
        )
        ctx.respond(cast(Chunks, chunks), size)

    def _open_session(self) -> int:
        for key, result in self._results.items():
            self._partitions[key].remember(result)
        session = self._ctx.broker.fetch_sessions.open(
            self._partitions,
            # Not by its replica id alone: such a session makes room by closing those of consumers.
            privileged=self._is_follower,
            uses_topic_ids=self._ctx.api_version >= TOPIC_ID_FROM,
            now_ms=self._ctx.broker.clock.monotonic_ms(),
        )
        return session.id if session is not None else 0
