"""The delivery states of a record in a share group, and its transitions: a table.

    AVAILABLE ──acquire──► ACQUIRED ──ACCEPT──► ACKNOWLEDGED
        ▲                     │ └──REJECT, GAP──► ARCHIVED
        └──RELEASE, lock lost─┘ (ARCHIVED instead after the last delivery attempt)

A pair that is not in the table is refused: `next_state` raises KafkaError.
"""

from enum import Enum, IntEnum

from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.share_codes import AcknowledgeType


class RecordState(IntEnum):
    """The values are the bytes in Kafka's records. ACQUIRED is never written."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


class RecordEvent(Enum):
    ACQUIRED = "acquired"
    ACCEPTED = "accepted"
    RELEASED = "released"
    REJECTED = "rejected"
    RENEWED = "renewed"
    LOCK_LOST = "lock lost"  # the lock timed out, or its member is gone
    SKIPPED = "skipped"  # the log has no such record, or it must not be delivered


TRANSITIONS: dict[tuple[RecordState, RecordEvent], RecordState] = {
    (AVAILABLE, RecordEvent.ACQUIRED): ACQUIRED,
    (AVAILABLE, RecordEvent.SKIPPED): ARCHIVED,
    (ACQUIRED, RecordEvent.ACCEPTED): ACKNOWLEDGED,
    (ACQUIRED, RecordEvent.RELEASED): AVAILABLE,
    (ACQUIRED, RecordEvent.REJECTED): ARCHIVED,
    (ACQUIRED, RecordEvent.RENEWED): ACQUIRED,
    (ACQUIRED, RecordEvent.LOCK_LOST): AVAILABLE,
}
EVENT_OF: dict[int, RecordEvent] = {
    AcknowledgeType.GAP: RecordEvent.REJECTED,
    AcknowledgeType.ACCEPT: RecordEvent.ACCEPTED,
    AcknowledgeType.RELEASE: RecordEvent.RELEASED,
    AcknowledgeType.REJECT: RecordEvent.REJECTED,
    AcknowledgeType.RENEW: RecordEvent.RENEWED,
}
COMPLETE = frozenset((ACKNOWLEDGED, ARCHIVED))
NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."


def next_state(state: RecordState, event: RecordEvent) -> RecordState:
    after = TRANSITIONS.get((state, event))
    if after is None:
        raise KafkaError(ErrorCode.invalid_record_state, NOT_ACQUIRED)
    return after
