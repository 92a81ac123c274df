"""Fetch sessions (KIP-227): a consumer names its partitions once, then only what changed.

Called by `handlers/fetch.py`. A request carries (session_id, epoch):

    0, 0      all partitions; please open a session
    0, -1     all partitions, no session
    s, 0      close s, all partitions, open a new one
    s, -1     close s, all partitions, no session
    s, n > 0  only partitions that are new or changed (plus those to forget); n is the epoch
              the broker expects next, else INVALID_FETCH_SESSION_EPOCH

In a session the response, too, holds only partitions with records, an error, or a high watermark or
log start offset that differs from the last one sent.

A session with 1,000 partitions of which one got a record must not cost 1,000 reads. So the session
subscribes to its partitions, also between two requests, and keeps those that are worth a read:

    fresh   named by the request, changed since the last read, or with more records than fitted;
            those without a result last time come first, so that a small max_bytes starves none
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Protocol

from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.fetch import FetchPartition, FetchPartitionResult, FetchRequest

if TYPE_CHECKING:
    from odradek_broker.partition.partition import Partition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
# A session is evicted for a new one only after it was unused for so long (Kafka's
# min.incremental.fetch.session.eviction.ms).
EVICT_AFTER_MS = 120_000
# In all sessions of consumers, some 400 bytes each. Beyond it they fetch without a session.
PARTITIONS_MAX = 500_000

Key = tuple[str | bytes, int]


class WaitingCall(Protocol):
    """A request of a session that waits for progress."""

    def on_progress(self, partitions: "Sequence[Partition]") -> None: ...

    def answer_now(self) -> None: ...


class SessionPartition:
    """One partition of a fetch: what the client asks for, and what it was sent last."""

    __slots__ = (
        "asked",
        "name",
        "sent_high_watermark",
        "sent_log_start_offset",
        "subscribed",
        "topic_id",
    )

    def __init__(self, name: str | None, topic_id: bytes | None, asked: FetchPartition) -> None:
        self.name = name
        self.topic_id = topic_id
        self.asked = asked
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.subscribed: Partition | None = None  # the session is subscribed to it

    def remember(self, result: FetchPartitionResult) -> None:
        if result.error_code:
            self.sent_high_watermark = -1  # so that it is sent again after the error
        else:
            self.sent_high_watermark = result.high_watermark
            self.sent_log_start_offset = result.log_start_offset

    def changed(self, result: FetchPartitionResult) -> bool:
        return bool(
            result.records
            or result.error_code
            or result.diverging_epoch
            or result.preferred_read_replica >= 0
            or result.high_watermark != self.sent_high_watermark
            or result.log_start_offset != self.sent_log_start_offset
        )


def partitions_of(request: FetchRequest) -> dict[Key, SessionPartition]:
    """The partitions that a request names, in its order."""
    named: dict[Key, SessionPartition] = {}
    for name, topic_id, asked in request.topics:
        topic: str | bytes = name if name is not None else (topic_id or b"")
        for one in asked:
            named[topic, one.partition] = SessionPartition(name, topic_id, one)
    return named


def is_incremental(request: FetchRequest) -> bool:
    """Whether the request continues a session."""
    return request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)


class FetchSession:
    """Invariant: `fresh` ⊆ `partitions`."""

    __slots__ = (
        "epoch",
        "fresh",
        "id",
        "last_used_ms",
        "partitions",
        "privileged",
        "uses_topic_ids",
        "waiting",
    )

    def __init__(
        self,
        session_id: int,
        privileged: bool,
        uses_topic_ids: bool,
        partitions: dict[Key, SessionPartition],
    ) -> None:
        self.id = session_id
        self.privileged = privileged  # of a follower: consumers' sessions do not evict it
        self.uses_topic_ids = uses_topic_ids
        self.partitions = partitions
        self.fresh: dict[Key, None] = dict.fromkeys(partitions)
        self.epoch = 1  # that the next request has to carry
        self.last_used_ms = 0.0
        self.waiting: WaitingCall | None = None

    def update(self, request: FetchRequest) -> None:
        for key, named in partitions_of(request).items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = named
            else:
                known.asked = named.asked
            self.fresh[key] = None
        for name, topic_id, indexes in request.forgotten_topics:
            topic: str | bytes = name if name is not None else (topic_id or b"")
            for index in indexes:
                self._forget((topic, index))

    def _forget(self, key: Key) -> None:
        entry = self.partitions.pop(key, None)
        self.fresh.pop(key, None)
        if entry is not None and entry.subscribed is not None:
            entry.subscribed.unsubscribe(self)

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == 2**31 - 1 else self.epoch + 1

    def listen(self, entry: SessionPartition, partition: "Partition") -> None:
        """Subscribe to the partition; a topic that was created again has another one."""
        if entry.subscribed is not None and entry.subscribed is not partition:
            entry.subscribed.unsubscribe(self)
        entry.subscribed = partition
        partition.subscribe(self, follower=self.privileged)

    def on_progress(self, partitions: "Sequence[Partition]") -> None:
        for partition in partitions:
            topic_partition = partition.topic_partition
            topic = partition.topic_id if self.uses_topic_ids else topic_partition.topic
            key = (topic, topic_partition.partition)
            entry = self.partitions.get(key)
            if entry is None:
                continue
            self.fresh[key] = None
            if self.waiting is None and entry.subscribed is not None:
                # It is fresh until the next request: an abandoned session costs nothing more.
                entry.subscribed.unsubscribe(self)
        if self.waiting is not None:
            self.waiting.on_progress(partitions)

    def take_changed(
        self, results: Mapping[Key, FetchPartitionResult]
    ) -> list[tuple[Key, FetchPartitionResult]]:
        """The results that the client does not know yet; they count as sent."""
        changed = []
        for key, result in results.items():
            entry = self.partitions.get(key)
            if entry is None or not entry.changed(result):
                continue
            entry.remember(result)
            changed.append((key, result))
        return changed

    def close(self) -> None:
        for entry in self.partitions.values():
            if entry.subscribed is not None:
                entry.subscribed.unsubscribe(self)


class FetchSessions:
    """All open sessions, least recently used first.

    Invariant: at most `slots`, and at most `partitions_max` partitions in those of consumers.
    """

    def __init__(self, slots: int, rng: Random, partitions_max: int = PARTITIONS_MAX) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._partitions = 0  # of consumers

    def __len__(self) -> int:
        return len(self._sessions)

    def find(
        self, request: FetchRequest, uses_topic_ids: bool, now_ms: float
    ) -> tuple[FetchSession | None, dict[Key, SessionPartition]]:
        """The session that a request continues, if any, and the partitions to read."""
        if is_incremental(request):
            session = self.resume(request, uses_topic_ids, now_ms)
            if not session.partitions:
                self.close(session.id)
                return None, {}
            return session, session.partitions
        if request.session_id:
            self.close(request.session_id)
        return None, partitions_of(request)

    def resume(self, request: FetchRequest, uses_topic_ids: bool, now_ms: float) -> FetchSession:
        """The session of an incremental request, updated by it. Raises KafkaError."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        if session.waiting is not None:
            # The client sent a change (another partition) before the response, and responses are
            # sent in order.
            session.waiting.answer_now()
        before = len(session.partitions)
        session.update(request)
        if not session.privileged:
            self._partitions += len(session.partitions) - before
            if self._partitions > self._partitions_max:
                self.close(session.id)
                raise KafkaError(ErrorCode.fetch_session_id_not_found)
        session.advance()
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.id)
        return session

    def open(
        self,
        partitions: dict[Key, SessionPartition],
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: float,
    ) -> FetchSession | None:
        """A new session, or None if there is no room (the client continues without one)."""
        if not partitions or not self._make_room(privileged, now_ms):
            return None
        if not privileged and self._partitions + len(partitions) > self._partitions_max:
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._rng.randrange(1, 2**31)
        session = FetchSession(session_id, privileged, uses_topic_ids, partitions)
        session.last_used_ms = now_ms
        self._sessions[session_id] = session
        if not privileged:
            self._partitions += len(partitions)
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()
            if not session.privileged:
                self._partitions -= len(session.partitions)

    def _make_room(self, privileged: bool, now_ms: float) -> bool:
        if len(self._sessions) < self._slots:
            return True
        for session in self._sessions.values():
            unused = now_ms - session.last_used_ms > EVICT_AFTER_MS
            if unused or (privileged and not session.privileged):
                self.close(session.id)
                return True
        return False
