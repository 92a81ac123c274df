"""A streams group: members, topology, target assignment. Only `replay` changes it.

    Empty ──join──► NotReady ──topics exist──► Assigning ──► Reconciling ──all at target──► Stable
      ▲                 ▲──────────── topics are missing or wrong ─────────────────────────────┘
      └────────────────────────── the last member leaves ──────────────────────────────────────

The state is not stored but derived from the epochs, as in Kafka.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_broker.group.member_records import MemberRecord, tombstone
from odradek_broker.group.members import GroupOfMembers, newer_epoch, wrong_epoch
from odradek_broker.group.records import Key, OffsetAndMetadata
from odradek_broker.group.streams import records as rec
from odradek_broker.group.streams.member import MemberState, StreamsMember
from odradek_broker.group.streams.tasks import NO_TASKS, OWNS_NOTHING, Task, Tasks, each
from odradek_broker.group.streams.topics import Configured, configure
from odradek_broker.group.streams.topology import Topology
from odradek_broker.group.turn import Turn
from odradek_broker.metadata.image import MetadataImage, TopicImage
from odradek_protocol.error_codes import ErrorCode

EMPTY, NOT_READY, ASSIGNING = "Empty", "NotReady", "Assigning"
RECONCILING, STABLE = "Reconciling", "Stable"
SESSION_TIMER, REBALANCE_TIMER = "streams-session", "streams-rebalance"
# As in Kafka: the first member raises the group's epoch to 2.
FIRST_EPOCH = 1
NOT_VALIDATED = -1


class Holders(NamedTuple):
    """The processes that have a task now, or are about to give it back."""

    active: dict[Task, str]
    copies: dict[Task, set[str]]  # standby and warm-up tasks


class StreamsGroup(GroupOfMembers[StreamsMember]):
    """Invariants: an active task has one owner; a process has each task once."""

    type_name = "Streams"
    protocol_type = "streams"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, FIRST_EPOCH)
        self.validated_topology_epoch = NOT_VALIDATED
        self.assignment_configs: Mapping[str, str] = {}
        self.topology: Topology | None = None
        self.target: dict[str, Tasks] = {}
        # Not in records: a new coordinator begins again.
        self.shutdown_requested_by: str | None = None
        self.endpoint_epoch = 0
        self._configured: tuple[Topology, Mapping[str, TopicImage], Configured] | None = None
        self._holders: Holders | None = None

    def copy(self) -> "StreamsGroup":
        other = StreamsGroup(self.group_id)
        other.__dict__.update(self.__dict__)
        other.members, other.target = dict(self.members), dict(self.target)
        return other

    # --- the Group protocol ------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        if not self.members:
            return EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return NOT_READY
        if self.group_epoch > self.target_epoch:
            return ASSIGNING
        reconciled = all(m.is_reconciled_to(self.target_epoch) for m in self.members.values())
        return STABLE if reconciled else RECONCILING

    def validate_offset_commit(
        self,
        turn: Turn,  # noqa: ARG002  (a commit is no sign of life: heartbeats are)
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
    ) -> Callable[[MetadataImage, Key], ErrorCode] | None:
        """Members commit in their current epoch, or in an older one for tasks kept since."""
        member = self.committing_member(
            member_id, group_instance_id, generation, transactional=transactional
        )
        if member is None or generation == member.member_epoch:
            return None
        if generation > member.member_epoch:
            raise newer_epoch(ErrorCode.stale_member_epoch, generation, member)
        subtopology_of = self.topology.subtopology_of if self.topology else {}

        def check(_: MetadataImage, key: Key) -> ErrorCode:
            task = Task(subtopology_of.get(key[0], ""), key[1])
            since = member.owned.epoch_of(task)
            if since is None:
                since = member.revoking.epoch_of(task)
            fits = since is not None and generation >= since
            return ErrorCode.none if fits else ErrorCode.stale_member_epoch

        return check

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        member = self.fetching_member(member_id, member_epoch)
        if member is not None and member_epoch != member.member_epoch:
            raise wrong_epoch(ErrorCode.stale_member_epoch, member_epoch, member)

    def is_subscribed(self, topic: str) -> bool:
        """An application that is stopped keeps its offsets only as long as others do."""
        known = self.topology.subtopology_of if self.topology and self.members else {}
        return topic in known

    def offset_expires_at_ms(self, key: Key, value: OffsetAndMetadata, retention_ms: int) -> float:
        if self.is_subscribed(key[0]):
            return float("inf")
        if value.expire_timestamp_ms >= 0:
            return float(value.expire_timestamp_ms)
        return float(value.commit_timestamp_ms + retention_ms)

    def tombstones(self) -> list[CoordinatorRecord]:
        """In this order, so that a replayed member is always complete."""
        gone = [tombstone(rec.CURRENT_MEMBER, self.group_id, m) for m in self.members]
        gone += [tombstone(rec.TARGET_MEMBER, self.group_id, m) for m in self.target]
        gone.append(tombstone(rec.TARGET, self.group_id))
        gone += [tombstone(rec.MEMBER, self.group_id, m) for m in self.members]
        gone.append(tombstone(rec.TOPOLOGY, self.group_id))
        gone.append(tombstone(rec.GROUP, self.group_id))
        return [rec.encode(record) for record in gone]

    def loaded(self, turn: Turn, own: Mapping[str, str]) -> None:
        """Every member gets a new session, and a new timeout to give tasks back."""
        session_ms = turn.config.streams.of_group(own).session_timeout_ms
        for member in self.members.values():
            turn.set_timer((SESSION_TIMER, self.group_id, member.member_id), session_ms)
            if member.state is MemberState.UNREVOKED_TASKS:
                key = (REBALANCE_TIMER, self.group_id, member.member_id)
                turn.set_timer(key, member.rebalance_timeout_ms)

    # --- queries ----------------------------------------------------------------------------------

    def target_of(self, member_id: str) -> Tasks:
        return self.target.get(member_id, NO_TASKS)

    def configured(self, topology: Topology, image: MetadataImage) -> Configured:
        """Computed again only when the topology or the topics have changed."""
        known = self._configured
        if known is None or known[0] is not topology or known[1] is not image.topics:
            known = self._configured = (topology, image.topics, configure(topology, image))
        return known[2]

    def hash_of_topics(self, topology: Topology, image: MetadataImage) -> int:
        """Changes when a topic of the application is created, deleted or gets partitions."""
        digest = blake2b(digest_size=8)
        known = False
        for name in sorted(topology.required_topics):
            topic = image.topics.get(name)
            if topic is not None:
                known = True
                digest.update(f"{name} {topic.id} {len(topic.partitions)};".encode())
        return int.from_bytes(digest.digest(), "big", signed=True) if known else 0

    @property
    def holders(self) -> Holders:
        if self._holders is None:
            active: dict[Task, str] = {}
            copies: dict[Task, set[str]] = {}
            for member in self.members.values():
                for tasks in (member.owned, member.revoking):
                    active.update(dict.fromkeys(each(tasks.active), member.process_id))
                    for task in (*each(tasks.standby), *each(tasks.warmup)):
                        copies.setdefault(task, set()).add(member.process_id)
            self._holders = Holders(active, copies)
        return self._holders

    # --- replay -----------------------------------------------------------------------------------

    def replay(self, record: MemberRecord) -> None:
        """Compaction may have removed earlier records, so any record may come first."""
        name, value = record.member_id, record.value
        match record.kind:
            case rec.GROUP if value is not None:
                self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
                self.validated_topology_epoch = value.validated_topology_epoch
                configs = value.last_assignment_configs or ()
                self.assignment_configs = {one.key: one.value for one in configs}
            case rec.TOPOLOGY:
                self.topology = Topology.of(value) if value is not None else None
            case rec.TARGET:
                self.target_epoch = value.assignment_epoch if value is not None else -1
                self.target_timestamp_ms = value.assignment_timestamp if value is not None else 0
            case rec.TARGET_MEMBER:
                if value is None:
                    self.target.pop(name, None)
                else:
                    self.target[name] = rec.tasks_of(value)
            case rec.MEMBER:
                if value is None:
                    self._remove(name)
                else:
                    self._put(replace(self._known(name), **rec.described(value)))
            case rec.CURRENT_MEMBER:
                if value is not None:
                    self._put(replace(self._known(name), **rec.placed(value)))
                elif name in self.members:
                    member = self.members[name]
                    self._put(replace(member, owned=OWNS_NOTHING, revoking=OWNS_NOTHING))

    def _known(self, member_id: str) -> StreamsMember:
        return self.members.get(member_id) or StreamsMember(member_id)

    def _put(self, member: StreamsMember) -> None:
        self._holders = None
        self.members[member.member_id] = member

    def _remove(self, member_id: str) -> None:
        self._holders = None
        self.members.pop(member_id, None)
        if not self.members:
            self.shutdown_requested_by = None

    def validate(self) -> None:
        """Assert every invariant; for tests, after each step."""
        owner: dict[Task, str] = {}
        of_process: set[tuple[str, Task]] = set()
        for member in self.members.values():
            for tasks in (member.owned, member.revoking):
                for task in each(tasks.active):
                    assert owner.setdefault(task, member.member_id) == member.member_id, task
                for task in (*each(tasks.active), *each(tasks.standby), *each(tasks.warmup)):
                    held = (member.process_id, task)
                    assert held not in of_process, f"{held} twice"
                    of_process.add(held)
        assert self.target_epoch <= self.group_epoch
