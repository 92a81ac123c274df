"""The protocol that every kind of group implements; the shard uses nothing else."""

from collections.abc import Callable, Mapping
from typing import Protocol

from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_broker.group.records import Key, OffsetAndMetadata
from odradek_broker.group.turn import Turn
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode


class Group(Protocol):
    group_id: str

    def __init__(self, group_id: str) -> None: ...

    type_name: str  # "Classic", "Consumer", "Share", "Streams": as in ListGroups

    @property
    def state_name(self) -> str:
        """The state as clients see it."""

    @property
    def protocol_type(self) -> str | None:
        """`consumer` for consumers; None for a group that only ever committed offsets."""

    @property
    def is_empty(self) -> bool:
        """No members: the group may be deleted, and any client may commit offsets."""

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
        """Raises KafkaError unless this member may commit now; restarts its session. May return a
        function that decides for each partition."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError unless this member (if one is named) may read offsets."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, so that its offsets must be kept; also True if
        that is unknown."""

    def offset_expires_at_ms(self, key: Key, value: OffsetAndMetadata, retention_ms: int) -> float:
        """Wall time from which the offset may be deleted; infinity while it is in use."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group itself; replaying them removes it."""

    def loaded(self, turn: Turn, own: Mapping[str, str]) -> None:
        """This broker is the coordinator now: starts the timers."""
