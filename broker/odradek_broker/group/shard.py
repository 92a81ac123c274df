"""All groups and offsets of one partition of `__consumer_offsets`. Does no I/O.

A `GroupKind` is what a shard needs to know about one kind of group; kinds.py lists them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from odradek_broker.coordinator.record_schema import version_of
from odradek_broker.coordinator.result import NOTHING, CoordinatorRecord, CoordinatorResult, Moment
from odradek_broker.coordinator.timers import Timers
from odradek_broker.group import records
from odradek_broker.group.classic_group import ClassicGroup
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.group import Group
from odradek_broker.group.metrics import GroupMetrics
from odradek_broker.group.offset_expiry import expire_offsets, topic_deleted
from odradek_broker.group.offsets import OffsetTable
from odradek_broker.group.states import GroupEvent, next_state
from odradek_broker.group.turn import TimerKey, Turn
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.metadata.records import ResourceType
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.ids import LeaderEpoch, Offset, ProducerId

logger = logging.getLogger(__name__)

EXPIRY_TIMER: TimerKey = ("expiry",)

Replayer = Callable[["GroupShard", Offset, ProducerId, CoordinatorRecord], None]
Due = Callable[["GroupShard", Turn, TimerKey], None]


@dataclass(frozen=True, slots=True)
class GroupKind:
    """How a shard replays the records and runs the timers of one kind of group."""

    replayers: Mapping[int, Replayer]  # by the type of a record's key
    timers: Mapping[str, Due]  # by the first part of a timer's key


G = TypeVar("G", bound=Group)


class GroupShard:
    """Invariant: every group that has a committed offset is in `groups`."""

    def __init__(
        self,
        config: Callable[[], GroupConfig],
        rng: Random,
        metrics: GroupMetrics,
        kinds: Sequence[GroupKind],
    ) -> None:
        self._config = config
        self._rng = rng
        self._metrics = metrics
        self._replayers = {k: v for kind in kinds for k, v in kind.replayers.items()}
        self._timers_due = {k: v for kind in kinds for k, v in kind.timers.items()}
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetTable()
        self.timers: Timers[TimerKey] = Timers()
        self.image: MetadataImage = EMPTY_IMAGE

    def turn(self, now: Moment) -> Turn:
        return Turn(now, self._config(), self.timers, self._rng, self._metrics)

    # --- groups -----------------------------------------------------------------------------------

    def classic(self, group_id: str, *, unknown: ErrorCode) -> ClassicGroup:
        """KafkaError(unknown) if there is no such group, or it is not a classic one."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(unknown)
        return group

    def forget_if_unused(self, group_id: str) -> None:
        """Drops a group without records, members and members that are about to join."""
        group = self.groups.get(group_id)
        if (
            isinstance(group, ClassicGroup)
            and group.is_empty
            and group.generation == 0
            and not group.pending
            and not self.offsets.of_group(group_id)
        ):
            del self.groups[group_id]

    # --- the Shard protocol -----------------------------------------------------------------------

    def replay(self, offset: Offset, producer_id: ProducerId, record: CoordinatorRecord) -> None:
        try:
            replayer = self._replayers.get(version_of(record.key))
            if replayer is None:
                logger.warning(
                    "the record at offset %d is of an unknown type and is skipped", offset
                )
                return
            replayer(self, offset, producer_id, record)
        except DecodeError as error:
            logger.error("the record at offset %d is skipped: %s", offset, error)

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        for group_id in self.offsets.end_transaction(producer_id, committed=committed):
            self.keep_or_forget(group_id)

    def loaded(
        self,
        leader_epoch: LeaderEpoch,  # noqa: ARG002
        image: MetadataImage,
        now: Moment,
    ) -> CoordinatorResult[None]:
        self.image = image
        turn = self.turn(now)
        turn.set_timer(EXPIRY_TIMER, turn.config.offsets_retention_check_ms)
        for group_id, group in self.groups.items():
            group.loaded(turn, image.config(ResourceType.GROUP, group_id))
        return turn.result(None, volatile=True)

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Nothing here depends on it."""

    def metadata_changed(self, delta: MetadataDelta, now: Moment) -> CoordinatorResult[None]:
        self.image = delta.after
        if not delta.deleted_topics:
            return NOTHING
        turn = self.turn(now)
        for topic in delta.deleted_topics.values():
            topic_deleted(self, turn, topic.name)  # even if a new topic has the same name
        return turn.result(None, volatile=False, atomic=False)

    def next_deadline_ms(self) -> float:
        return self.timers.next_deadline_ms()

    def expire(self, now: Moment) -> CoordinatorResult[None]:
        turn = self.turn(now)
        while (key := self.timers.pop_due(now.monotonic_ms)) is not None:
            self._timers_due[key[0]](self, turn, key)
        return turn.result(None, volatile=True, atomic=False)

    def validate(self) -> None:
        """Assert every invariant; for tests, after each step."""
        self.offsets.validate()
        assert set(self.offsets.groups()) <= self.groups.keys()
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                group.validate()

    # --- replaying --------------------------------------------------------------------------------

    def replay_offset(
        self, offset: Offset, producer_id: ProducerId, record: CoordinatorRecord
    ) -> None:
        key = records.OFFSET_COMMIT_KEY.read(record.key)
        value = None if record.value is None else records.offset_of(record.value)
        self.offsets.replay(offset, producer_id, key.group, (key.topic, key.partition), value)
        self.keep_or_forget(key.group)

    def group_to_replay(
        self, kind: type[G], group_id: str, *, ends: bool, is_tombstone: bool
    ) -> G | None:
        """The group that a record of this kind of group changes; the first one makes it. None: the
        record ended the group, or is a tombstone of records that compaction has removed already.
        """
        found = self.groups.get(group_id)
        if ends:
            if isinstance(found, kind):
                del self.groups[group_id]
                self.keep_or_forget(group_id)
            return None
        if isinstance(found, kind):
            return found
        if is_tombstone:
            return None
        made = self.groups[group_id] = kind(group_id)
        return made

    def keep_or_forget(self, group_id: str) -> None:
        if group_id in self.groups:
            self.forget_if_unused(group_id)
        elif self.offsets.of_group(group_id):
            # A client without membership stores its offsets here.
            self.groups[group_id] = ClassicGroup(group_id)

    def replay_group_metadata(
        self,
        _offset: Offset,
        _producer_id: ProducerId,
        record: CoordinatorRecord,
    ) -> None:
        group_id = records.GROUP_METADATA_KEY.read(record.key).group
        group = self.groups.get(group_id)
        if record.value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[group_id]
                group.state = next_state(group.state, GroupEvent.DELETED)
                self.keep_or_forget(group_id)
            return
        value = records.GROUP_METADATA_VALUE.read(record.value)
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id)
        group.replay_metadata(value)

    # --- timers -----------------------------------------------------------------------------------

    def group_due(self, turn: Turn, key: TimerKey) -> None:
        """("session", group, member), ("join", group) or ("sync", group)."""
        group = self.groups.get(key[1])
        if not isinstance(group, ClassicGroup):
            return
        match key[0]:
            case "session":
                group.session_due(turn, key[2])
                self.forget_if_unused(key[1])
            case "join":
                group.join_due(turn)
            case _:
                group.sync_due(turn)

    def expiry_due(self, turn: Turn, key: TimerKey) -> None:  # noqa: ARG002
        turn.set_timer(EXPIRY_TIMER, turn.config.offsets_retention_check_ms)
        expire_offsets(self, turn)


CLASSIC = GroupKind(
    replayers={
        records.LEGACY_OFFSET_COMMIT_TYPE: GroupShard.replay_offset,
        records.OFFSET_COMMIT_TYPE: GroupShard.replay_offset,
        records.GROUP_METADATA_TYPE: GroupShard.replay_group_metadata,
    },
    timers={
        "session": GroupShard.group_due,
        "join": GroupShard.group_due,
        "sync": GroupShard.group_due,
        EXPIRY_TIMER[0]: GroupShard.expiry_due,
    },
)
