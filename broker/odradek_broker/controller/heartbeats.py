"""The sessions of brokers, in the monotonic time of one controller. Does no I/O.

Sessions are not in the metadata log: a new controller gives every broker a full session. So it may
notice a dead broker later than the old controller would have, but never takes a live one for dead.
Used by `active.py`.

    sessions = BrokerSessions(image, now_ms=0, timeout_ms=2500)
    sessions.heard(3, offset=120, now_ms=400)
    sessions.expired(image, now_ms=3000)         → [1, 2]
    sessions.suspect(3, until_ms=4000)           3 is fenced then, unless it sends a heartbeat

A broker sends its next heartbeat after the response to the last one. While the controller itself
works on that response (`answering`), silence means nothing.

`answer_to` decides the state after a heartbeat (the table is Kafka's):

    fenced, caught up with its own registration      → unfenced
    fenced, wants to stop                            → may stop
    unfenced, wants to stop, leads partitions        → controlled shutdown: its leaders move
    in controlled shutdown, leads nothing, and the others have applied the moves → fenced, may stop
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from odradek_broker.metadata.image import BrokerRegistration, MetadataImage
from odradek_protocol.ids import BrokerId, Offset

NEVER = float("inf")


class BrokerState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "may stop"


@dataclass(slots=True)
class _Session:
    heard_ms: float
    # Set when its connection broke: the session ends at this time unless a heartbeat comes.
    suspect_until_ms: float = NEVER
    metadata_offset: Offset = -1
    # Brokers that have applied this offset of the metadata know that the broker leads nothing.
    shutdown_offset: Offset | None = None
    # Failed directories, as listed in its last heartbeat.
    offline_dirs: frozenset[UUID] = frozenset()
    # Heartbeats of this broker that the controller has not answered yet.
    unanswered: int = 0


class BrokerSessions:
    def __init__(self, image: MetadataImage, now_ms: float, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._sessions = {broker_id: _Session(now_ms) for broker_id in image.brokers}

    def begin(self, broker_id: BrokerId, now_ms: float) -> None:
        """The broker has registered (again)."""
        self._sessions[broker_id] = _Session(now_ms)

    def end(self, broker_id: BrokerId) -> None:
        self._sessions.pop(broker_id, None)

    def heard(
        self,
        broker_id: BrokerId,
        offset: Offset,
        now_ms: float,
        offline_dirs: Collection[UUID] = (),
    ) -> None:
        session = self._sessions.setdefault(broker_id, _Session(now_ms))
        session.heard_ms = max(session.heard_ms, now_ms)
        session.suspect_until_ms = NEVER
        session.metadata_offset = offset
        session.offline_dirs = frozenset(offline_dirs)

    def answering(self, broker_id: BrokerId) -> None:
        """The answer to its heartbeat needs a long decision, about thousands of partitions."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.unanswered += 1

    def answered(self, broker_id: BrokerId, now_ms: float) -> None:
        """The broker gets a whole new session now, unless its connection broke meanwhile."""
        session = self._sessions.get(broker_id)
        if session is not None and session.unanswered:
            session.unanswered -= 1
            session.heard_ms = max(session.heard_ms, now_ms)

    def offline_dirs(self) -> Mapping[BrokerId, Collection[UUID]]:
        """Failed directories by broker. A new controller learns them within one heartbeat
        interval."""
        return {
            broker_id: session.offline_dirs
            for broker_id, session in self._sessions.items()
            if session.offline_dirs
        }

    def grant(self, pause_ms: float, now_ms: float) -> None:
        """This controller read no requests for `pause_ms`: extends every session by that time.

        Heartbeats that arrived meanwhile are still in the sockets. A dead broker is noticed that
        much later.
        """
        for session in self._sessions.values():
            session.heard_ms = min(session.heard_ms + pause_ms, now_ms)
            session.suspect_until_ms += pause_ms

    def suspect(self, broker_id: BrokerId, until_ms: float) -> None:
        """Its connection broke: the session ends sooner, unless a heartbeat comes.

        A wrong guess costs a move of leaders, never a record: a broker that is fenced too early
        is handled like one that is fenced too late.
        """
        session = self._sessions.get(broker_id)
        if session is not None:
            session.suspect_until_ms = min(session.suspect_until_ms, until_ms)

    def is_valid(self, broker: BrokerRegistration, now_ms: float) -> bool:
        """Whether the registered incarnation has a session; a fenced one has none."""
        session = self._sessions.get(broker.id)
        if session is None or broker.fenced:
            return False
        return now_ms <= self._ends_ms(session)

    def expired(self, image: MetadataImage, now_ms: float) -> list[BrokerId]:
        """Unfenced brokers whose session has ended."""
        return [
            broker.id
            for broker in image.brokers.values()
            if not broker.fenced and not self.is_valid(broker, now_ms)
        ]

    def next_expiry_ms(self, image: MetadataImage) -> float:
        """The earliest time at which a session may end."""
        return min(
            (
                self._ends_ms(self._sessions[broker.id])
                for broker in image.brokers.values()
                if not broker.fenced and broker.id in self._sessions
            ),
            default=NEVER,
        )

    def _ends_ms(self, session: _Session) -> float:
        ends_ms = NEVER if session.unanswered else session.heard_ms + self.timeout_ms
        return min(ends_ms, session.suspect_until_ms)

    def silent_ms(self, broker_id: BrokerId, now_ms: float) -> float | None:
        """Time since the last heartbeat; None if there was none."""
        session = self._sessions.get(broker_id)
        return None if session is None else now_ms - session.heard_ms

    # -- controlled shutdown -------------------------------------------------------------------

    def shutting_down(self, broker_id: BrokerId, offset: Offset) -> None:
        """The records up to `offset` move its leadership; only the first call counts."""
        session = self._sessions[broker_id]
        if session.shutdown_offset is None:
            session.shutdown_offset = offset

    def may_stop(self, image: MetadataImage, broker_id: BrokerId) -> bool:
        """Whether every broker that serves clients knows the leaders that replace this broker."""
        offset = self._sessions[broker_id].shutdown_offset
        if offset is None:
            return False
        return all(seen >= offset for seen in self._active_offsets(image))

    def _active_offsets(self, image: MetadataImage) -> Iterable[Offset]:
        for broker in image.brokers.values():
            session = self._sessions.get(broker.id)
            if broker.active and session is not None:
                yield session.metadata_offset


def state_of(broker: BrokerRegistration) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


def answer_to(
    state: BrokerState,
    *,
    want_fence: bool,
    want_shut_down: bool,
    caught_up: bool,
    leads: bool,
    may_stop: bool,
) -> BrokerState:
    """The state of a broker after a heartbeat. `leads`: it leads at least one partition."""
    match state:
        case BrokerState.FENCED:
            if want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            if caught_up and not want_fence:
                return BrokerState.UNFENCED
            return BrokerState.FENCED
        case BrokerState.UNFENCED:
            if want_shut_down:
                if leads and not want_fence:
                    return BrokerState.CONTROLLED_SHUTDOWN
                return BrokerState.SHUTDOWN_NOW
            return BrokerState.FENCED if want_fence else BrokerState.UNFENCED
        case _:
            if leads or not may_stop:
                return BrokerState.CONTROLLED_SHUTDOWN
            return BrokerState.SHUTDOWN_NOW
