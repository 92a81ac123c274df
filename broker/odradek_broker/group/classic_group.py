"""A classic group: its members, its generation, and the steps of a rebalance. Does no I/O.

The log has the result of each generation: its members and the leader's assignment. The state of a
rebalance (members that have joined, parked requests, sessions) is only in memory. A new
coordinator finds the last generation and gives every member a new session; members continue with
their next heartbeat.

    join …      prepare_rebalance   all members have to join: heartbeats get REBALANCE_IN_PROGRESS
    all joined  complete_join       a new generation; the leader gets the list of members
    sync …      (classic_sync)      the leader's assignment is written; replay makes it Stable
"""

from collections.abc import Mapping

from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_broker.group import subscription
from odradek_broker.group.classic_member import Member, common_protocols, most_voted_protocol
from odradek_broker.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from odradek_broker.group.records import (
    Key,
    OffsetAndMetadata,
    group_metadata_record,
    group_tombstone,
)
from odradek_broker.group.states import GroupEvent, GroupState, next_state
from odradek_broker.group.turn import Turn
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicGroup:
    """Invariants (`validate`): `static` maps each instance id to its member; the leader, if there
    is one, is a member; joins and syncs are parked only in the states that allow it."""

    type_name = "Classic"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = -1  # wall time of the last recorded change of state
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # instance id → member id
        self.pending: set[str] = set()  # member ids that were assigned and have not joined yet
        self.pending_sync: set[str] = set()  # joined this generation, not yet synced
        # How much longer the first rebalance may be delayed for more members.
        self.initial_delay_left_ms = 0.0
        self.new_member_added = False
        self.in_initial_delay = False
        self.emptying = False  # the record of the empty group is not replayed yet

    # --- the Group protocol ------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def member_count(self) -> int:
        return len(self.members)

    def validate_offset_commit(
        self,
        turn: Turn,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
    ) -> None:
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.coordinator_not_available)
        if generation < 0 and self.is_empty:
            return  # the group is only used to store offsets
        if generation >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.illegal_generation)
        elif not transactional and not self.is_empty:
            raise KafkaError(ErrorCode.unknown_member_id)
        if not transactional and self.state is GroupState.COMPLETING_REBALANCE:
            # The member has joined the generation, but has no assignment yet.
            raise KafkaError(ErrorCode.rebalance_in_progress)
        member = self.members.get(member_id)
        if member is not None and not transactional:
            self.alive(turn, member)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Every client may read the offsets of a classic group."""

    def is_subscribed(self, topic: str) -> bool:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return not self.is_empty
        topics = self.subscribed_topics()
        return topics is None or topic in topics

    def subscribed_topics(self) -> set[str] | None:
        """The topics of all members; None if a subscription cannot be parsed."""
        topics: set[str] = set()
        for member in self.members.values():
            found = subscription.topics_of(member.metadata(self.protocol))
            if found is None:
                return None
            topics |= found
        return topics

    def offset_expires_at_ms(self, key: Key, value: OffsetAndMetadata, retention_ms: int) -> float:
        if self.protocol_type is None:
            base_ms = value.commit_timestamp_ms
        elif self.is_empty:
            since_ms = self.state_timestamp_ms
            base_ms = since_ms if since_ms >= 0 else value.commit_timestamp_ms
        elif self.state is GroupState.STABLE and not self.is_subscribed(key[0]):
            base_ms = value.commit_timestamp_ms
        else:
            return float("inf")
        if value.expire_timestamp_ms >= 0:
            return float(value.expire_timestamp_ms)
        return float(base_ms + retention_ms)

    def tombstones(self) -> list[CoordinatorRecord]:
        # A group that only has offsets has no record of its own.
        return [group_tombstone(self.group_id)] if self.generation > 0 else []

    # --- members ------------------------------------------------------------------------------

    def validate_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has this instance id."""
        if group_instance_id is not None:
            holder = self.static.get(group_instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.unknown_member_id)
            if holder != member_id:
                raise KafkaError(ErrorCode.fenced_instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        return member

    def alive(self, turn: Turn, member: Member) -> None:
        """Restarts the session of the member."""
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        turn.set_timer(("session", self.group_id, member.member_id), timeout_ms)

    def add(self, turn: Turn, member: Member) -> None:
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.alive(turn, member)

    def forget(self, turn: Turn, member: Member) -> None:
        """Removes the member from the group; its parked requests fail."""
        turn.timers.cancel(("session", self.group_id, member.member_id))
        self.members.pop(member.member_id, None)
        self.pending_sync.discard(member.member_id)
        instance_id = member.group_instance_id
        if instance_id is not None and self.static.get(instance_id) == member.member_id:
            del self.static[instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self.refuse(turn, member, ErrorCode.unknown_member_id)

    def refuse(self, turn: Turn, member: Member, error: ErrorCode) -> None:
        if member.deferred_join is not None:
            turn.answer(member.deferred_join, join_error(member.member_id, error))
            member.deferred_join = None
        if member.deferred_sync is not None:
            turn.answer(member.deferred_sync, Struct(error_code=error))
            member.deferred_sync = None

    def replace_static(self, turn: Turn, old: Member, member_id: str) -> Member:
        """A new process with the same instance id replaces the member, which is fenced."""
        self.refuse(turn, old, ErrorCode.fenced_instance_id)
        self.rename(turn, old, member_id)
        self.alive(turn, old)
        return old

    def rename(self, turn: Turn | None, member: Member, member_id: str) -> None:
        old_id = member.member_id
        if turn is not None:
            turn.timers.cancel(("session", self.group_id, old_id))
        self.members = {
            (member_id if name == old_id else name): one for name, one in self.members.items()
        }
        member.member_id = member_id
        assert member.group_instance_id is not None
        self.static[member.group_instance_id] = member_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(member_id)
        if self.leader == old_id:
            self.leader = member_id

    # --- protocols ----------------------------------------------------------------------------

    def supports_protocols(self, protocol_type: str, names: set[str]) -> bool:
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        common = common_protocols(self.members.values())
        return self.protocol_type == protocol_type and bool(common & names)

    # --- the steps of a rebalance -------------------------------------------------------------

    def prepare_rebalance(self, turn: Turn) -> None:
        """Starts a rebalance: all members have to join again."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.members.values():
                member.assignment = b""
                if member.deferred_sync is not None:
                    self.refuse(turn, member, ErrorCode.rebalance_in_progress)
        turn.timers.cancel(("sync", self.group_id))
        self.pending_sync.clear()
        was_empty = self.is_empty
        self.state = next_state(self.state, GroupEvent.REBALANCE)
        if was_empty:
            # More members may join soon: one rebalance for all is better than one for each.
            delay_ms = turn.config.initial_rebalance_delay_ms
            self.in_initial_delay = True
            self.new_member_added = False
            self.initial_delay_left_ms = max(self.rebalance_timeout_ms - delay_ms, 0)
            turn.set_timer(("join", self.group_id), delay_ms)
            if delay_ms == 0:
                self.join_due(turn)
            return
        turn.set_timer(("join", self.group_id), self.rebalance_timeout_ms)
        self.complete_join_if_all_joined(turn)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def join_due(self, turn: Turn) -> None:
        """The join timer expired."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        if self.in_initial_delay and self.new_member_added and self.initial_delay_left_ms > 0:
            delay_ms = min(turn.config.initial_rebalance_delay_ms, self.initial_delay_left_ms)
            self.initial_delay_left_ms = max(self.initial_delay_left_ms - delay_ms, 0)
            self.new_member_added = False
            turn.set_timer(("join", self.group_id), delay_ms)
            return
        self.complete_join(turn)

    def complete_join_if_all_joined(self, turn: Turn) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE or self.in_initial_delay:
            return
        joined = all(member.deferred_join is not None for member in self.members.values())
        if joined and not self.pending:
            self.complete_join(turn)

    def complete_join(self, turn: Turn) -> None:
        """Starts a new generation with the members that joined; static members may be late."""
        turn.timers.cancel(("join", self.group_id))
        for member in list(self.members.values()):
            if member.deferred_join is None and member.group_instance_id is None:
                self.forget(turn, member)
        joined = [m.member_id for m in self.members.values() if m.deferred_join is not None]
        if self.members and not joined:
            # Only static members that have not joined again yet: wait for them or their sessions.
            turn.set_timer(("join", self.group_id), self.rebalance_timeout_ms)
            return
        self.in_initial_delay = False
        if not self.members:
            if self.emptying:
                return
            self.emptying = True  # until `replay_metadata`
            turn.records.append(self.metadata_record(turn.now.wall_ms, {}, self.generation + 1))
            return
        if self.leader not in joined:
            self.leader = joined[0]
        self.generation += 1
        turn.metrics.completed_rebalances += 1
        self.state = next_state(self.state, GroupEvent.ALL_JOINED)
        self.protocol = most_voted_protocol(self.members.values())
        self.pending_sync = set(joined)
        for member in self.members.values():
            member.assignment = b""
            if member.deferred_join is not None:
                turn.answer(member.deferred_join, self.join_response(member))
                member.deferred_join = None
                member.is_new = False
                self.alive(turn, member)
        turn.set_timer(("sync", self.group_id), self.rebalance_timeout_ms)

    def sync_due(self, turn: Turn) -> None:
        """Removes members that joined but never sent SyncGroup."""
        if self.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        late = [self.members[member_id] for member_id in self.pending_sync]
        self.pending_sync.clear()
        if late:
            for member in late:
                self.forget(turn, member)
            self.prepare_rebalance(turn)

    def session_due(self, turn: Turn, member_id: str) -> None:
        if member_id in self.pending:
            self.pending.remove(member_id)
            self.complete_join_if_all_joined(turn)
            return
        member = self.members.get(member_id)
        if member is None:
            return
        if not member.is_new and (member.deferred_join or member.deferred_sync):
            self.alive(turn, member)  # its request is parked: it cannot send heartbeats
            return
        self.remove(turn, member)

    def remove(self, turn: Turn, member: Member) -> None:
        """The member left, or its session ended."""
        self.forget(turn, member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare_rebalance(turn)
        elif self.state is GroupState.PREPARING_REBALANCE:
            if not self.members and not self.pending:
                self.in_initial_delay = False
            self.complete_join_if_all_joined(turn)

    # --- responses and records ----------------------------------------------------------------

    def join_response(self, member: Member, *, skip_assignment: bool = False) -> Struct:
        is_leader = member.member_id == self.leader
        return Struct(
            error_code=ErrorCode.none,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader,
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=self.member_list() if is_leader else [],
        )

    def member_list(self) -> list[Struct]:
        return [
            Struct(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in self.members.values()
        ]

    def metadata_record(
        self, wall_ms: int, assignments: Mapping[str, bytes], generation: int | None = None
    ) -> CoordinatorRecord:
        """The record of the current group, with these assignments."""
        protocol = self.protocol if self.members else None
        return group_metadata_record(
            self.group_id,
            Struct(
                protocol_type=self.protocol_type or "",
                generation=self.generation if generation is None else generation,
                protocol=protocol,
                leader=self.leader if self.members else None,
                current_state_timestamp=wall_ms,
                members=[
                    member.as_record(protocol, assignments.get(member.member_id, b""))
                    for member in self.members.values()
                ],
            ),
        )

    def replay_metadata(self, value: Struct) -> None:
        """Applies the record of a generation. Members that are known keep what is not in the
        record: their parked requests, and all protocols that they support."""
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader = value.leader
        self.state_timestamp_ms = value.current_state_timestamp
        members = {}
        for record in value.members:
            known = self.members.get(record.member_id)
            instance_id = record.group_instance_id
            if known is None and instance_id is not None:
                known = self.members.get(self.static.get(instance_id, ""))
            if known is None:
                known = Member.from_record(record, value.protocol)
            known.member_id = record.member_id
            known.assignment = record.assignment
            known.deferred_sync = None
            members[record.member_id] = known
        self.members = members
        self.static = {
            member.group_instance_id: member.member_id
            for member in members.values()
            if member.group_instance_id is not None
        }
        self.pending_sync &= members.keys()
        self.in_initial_delay = self.emptying = False
        self.state = GroupState.STABLE if members else GroupState.EMPTY

    def loaded(self, turn: Turn, own: Mapping[str, str]) -> None:  # noqa: ARG002
        """This broker is the coordinator now: starts a session for every member."""
        for member in self.members.values():
            self.alive(turn, member)
        if len(self.members) > turn.config.max_size:
            self.prepare_rebalance(turn)

    def validate(self) -> None:
        assert self.leader is None or self.leader in self.members
        assert all(self.members[name].member_id == name for name in self.members)
        assert self.static == {
            m.group_instance_id: m.member_id for m in self.members.values() if m.group_instance_id
        }
        assert not self.pending & self.members.keys()
        assert self.pending_sync <= self.members.keys()
        for member in self.members.values():
            if member.deferred_join is not None:
                assert self.state is GroupState.PREPARING_REBALANCE
            if member.deferred_sync is not None:
                assert self.state is GroupState.COMPLETING_REBALANCE
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not self.members
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert self.members
            assert self.generation > 0


def join_error(member_id: str, error: ErrorCode) -> Struct:
    return Struct(
        error_code=error,
        generation_id=-1,
        protocol_type=None,
        protocol_name=None,
        leader="",
        member_id=member_id,
        members=[],
    )
