"""What the shard asks of a group of whatever kind. A new kind implements this and plugs in."""

from collections.abc import Callable
from typing import Protocol

from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_broker.group.records import Key, OffsetAndMetadata
from odradek_broker.group.turn import Turn
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode


class Group(Protocol):
    group_id: str
    type_name: str  # "Classic", "Consumer": as ListGroups says it

    @property
    def state_name(self) -> str:
        """As clients see it."""

    @property
    def protocol_type(self) -> str | None:
        """`consumer` for consumers; None for a group that only ever committed offsets."""

    @property
    def is_empty(self) -> bool:
        """No members: it may be deleted, and anybody may commit offsets."""

    @property
    def member_count(self) -> int: ...

    def validate_offset_commit(
        self,
        turn: Turn,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
    ) -> Callable[[MetadataImage, Key], ErrorCode] | None:
        """Raises KafkaError unless this member may commit now; counts as a sign of life. May give
        a function that decides for each partition."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError unless this member (if one is named) may read offsets."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets may be neither deleted nor
        expired; also True if that is not known."""

    def offset_expires_at_ms(self, key: Key, value: OffsetAndMetadata, retention_ms: int) -> float:
        """Wall time from which the offset may go; infinity while it is in use."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group itself; replaying them forgets it."""

    def loaded(self, turn: Turn) -> None:
        """This broker coordinates it from now on: timers begin."""
