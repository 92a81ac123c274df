"""A consumer group: members, target assignment, current assignment. Only `replay` changes it.

    Empty ──join──► Assigning ──target computed──► Reconciling ──all at target──► Stable
      ▲                 ▲──────────a subscription or the topics change───────────────┘
      └────────────────────────────── the last member leaves ─────────────────────────

The state is not stored but derived from the epochs, as in Kafka.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b

from odradek_broker.coordinator.result import CoordinatorRecord
from odradek_broker.group.consumer import records as rec
from odradek_broker.group.consumer.member import (
    NO_PARTITIONS,
    NOTHING,
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
    Partitions,
)
from odradek_broker.group.members import GroupOfMembers, newer_epoch, wrong_epoch
from odradek_broker.group.records import Key, OffsetAndMetadata
from odradek_broker.group.turn import Turn
from odradek_broker.metadata.image import MetadataImage, TopicImage
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicId

# Whether an offset may be committed in an epoch that is not the member's newest.
CommitCheck = Callable[[MetadataImage, Key], ErrorCode]

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"


class ConsumerGroup(GroupOfMembers[ConsumerGroupMember]):
    """Invariants: a partition has one owner; static_members names members that exist."""

    type_name = "Consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}  # instance id → member id
        self.target: dict[str, Partitions] = {}
        self.regexes: dict[str, rec.ResolvedRegex] = {}
        self.owners: dict[TopicId, dict[int, str]] = {}  # of assigned or unrevoked partitions
        # Not in records: a new coordinator checks topics and expressions again.
        self.seen_topics: Mapping[str, TopicImage] | None = None
        self.regexes_checked_ms = 0
        self.resolving: frozenset[str] = frozenset()  # expressions that a thread is matching
        self._subscribed: Counter[str] | None = None

    def copy(self) -> "ConsumerGroup":
        other = ConsumerGroup(self.group_id)
        for name in ("group_epoch", "metadata_hash", "target_epoch", "target_timestamp_ms"):
            setattr(other, name, getattr(self, name))
        other.members, other.static_members = dict(self.members), dict(self.static_members)
        other.target, other.regexes = dict(self.target), dict(self.regexes)
        other.owners = {topic: dict(owners) for topic, owners in self.owners.items()}
        other.regexes_checked_ms, other.resolving = self.regexes_checked_ms, self.resolving
        other._subscribed = self._subscribed
        return other

    # --- the Group protocol ------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state

    def validate_offset_commit(
        self,
        turn: Turn,  # noqa: ARG002  (a commit is no sign of life: heartbeats are)
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
    ) -> CommitCheck | None:
        """Members commit in their current epoch, or in an older one for partitions kept since."""
        member = self.committing_member(
            member_id, group_instance_id, generation, transactional=transactional
        )
        if member is None or generation == member.member_epoch:
            return None
        stale = ErrorCode.illegal_generation if member.classic else ErrorCode.stale_member_epoch
        if generation > member.member_epoch:
            raise newer_epoch(stale, generation, member)

        def check(image: MetadataImage, key: Key) -> ErrorCode:
            topic = image.topics.get(key[0])
            since = None if topic is None else member.assignment_epoch(topic.id, key[1])
            return ErrorCode.none if since is not None and generation >= since else stale

        return check

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        member = self.fetching_member(member_id, member_epoch)
        if member is not None and member_epoch != member.member_epoch:
            error = ErrorCode.illegal_generation if member.classic else ErrorCode.stale_member_epoch
            raise wrong_epoch(error, member_epoch, member)

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscribed_topics()

    def offset_expires_at_ms(self, key: Key, value: OffsetAndMetadata, retention_ms: int) -> float:
        if self.is_subscribed(key[0]):
            return float("inf")
        if value.expire_timestamp_ms >= 0:
            return float(value.expire_timestamp_ms)
        return float(value.commit_timestamp_ms + retention_ms)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(*rec.encode(record)) for record in self.tombstone_records()]

    def loaded(self, turn: Turn, own: Mapping[str, str]) -> None:
        """Every member gets a new session, and a new timeout to revoke partitions."""
        config = turn.config.consumer.of_group(own)
        for member in self.members.values():
            session_ms = config.session_timeout_ms
            if member.classic is not None:
                session_ms = member.classic.session_timeout_ms
            turn.set_timer(("consumer-session", self.group_id, member.member_id), session_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                key = ("consumer-rebalance", self.group_id, member.member_id)
                turn.set_timer(key, member.rebalance_timeout_ms)

    # --- queries ----------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        if self.group_epoch > self.target_epoch:
            return ASSIGNING
        reconciled = all(m.is_reconciled_to(self.target_epoch) for m in self.members.values())
        return STABLE if reconciled else RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> Partitions:
        return self.target.get(member_id, NO_PARTITIONS)

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Subscribed by name, or by an expression that is resolved."""
        resolved = self.regexes.get(member.subscribed_topic_regex or "")
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names.union(resolved.topics)

    def subscribed_topics(self) -> Counter[str]:
        """How many members subscribe to each topic."""
        if self._subscribed is None:
            self._subscribed = Counter()
            for member in self.members.values():
                self._subscribed.update(self.topics_of(member))
        return self._subscribed

    def hash_of_topics(self, image: MetadataImage) -> int:
        """Changes when a subscribed topic is created, deleted, recreated or gets partitions."""
        digest = blake2b(digest_size=8)
        known = False
        for name in sorted(self.subscribed_topics()):
            topic = image.topics.get(name)
            if topic is not None:
                known = True
                digest.update(f"{name} {topic.id} {len(topic.partitions)};".encode())
        return int.from_bytes(digest.digest(), "big", signed=True) if known else 0

    def preferred_assignor(self, default: str) -> str:
        """The assignor that most members prefer; among equals the first by name."""
        asked = Counter(m.server_assignor for m in self.members.values() if m.server_assignor)
        return max(sorted(asked), key=lambda name: asked[name], default=default)

    def classic_members(self) -> list[ConsumerGroupMember]:
        return [member for member in self.members.values() if member.uses_classic_protocol]

    def is_free_for(self, topic_id: TopicId, partition: int, member_id: str) -> bool:
        """Whether no other member holds it. A member may keep what it is about to revoke."""
        owner = self.owners.get(topic_id, {}).get(partition)
        return owner is None or owner == member_id

    # --- replay -----------------------------------------------------------------------------------

    def replay(self, record: rec.ConsumerGroupRecord) -> None:
        """Compaction may have removed earlier records, so any record may come first."""
        name, value = record.name, record.value
        if record.type == rec.GROUP_EPOCH and isinstance(value, rec.GroupEpoch):
            self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif record.type == rec.TARGET_EPOCH:
            done = value if isinstance(value, rec.TargetEpoch) else rec.TargetEpoch(-1)
            self.target_epoch = done.assignment_epoch
            self.target_timestamp_ms = done.assignment_timestamp
        elif record.type == rec.MEMBER:
            self._subscribed = None
            if isinstance(value, rec.MemberMetadata):
                self._put(_described(self._known(name), value))
            else:
                self._remove(name)
        elif record.type == rec.TARGET_MEMBER:
            if isinstance(value, rec.TargetMember):
                topics = value.topic_partitions
                self.target[name] = {t.topic_id: frozenset(t.partitions) for t in topics}
            else:
                self.target.pop(name, None)
        elif record.type == rec.CURRENT_MEMBER:
            if isinstance(value, rec.CurrentMember):
                self._put(_placed(self._known(name), value))
            elif name in self.members:
                self._put(replace(self.members[name], assigned=NOTHING, pending_revocation=NOTHING))
        elif record.type == rec.REGEX:
            self._subscribed = None
            if isinstance(value, rec.ResolvedRegex):
                self.regexes[name] = value
            else:
                self.regexes.pop(name, None)

    def _known(self, member_id: str) -> ConsumerGroupMember:
        return self.members.get(member_id) or ConsumerGroupMember(member_id)

    def _put(self, member: ConsumerGroupMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
        self.members[member.member_id] = member
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                owners = self.owners.setdefault(topic_id, {})
                owners.update(dict.fromkeys(partitions, member.member_id))
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        if self.static_members.get(member.instance_id or "") == member_id:
            del self.static_members[member.instance_id or ""]

    def _release(self, member: ConsumerGroupMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)

    def tombstone_records(self) -> list[rec.ConsumerGroupRecord]:
        """In this order, so that a replayed member is always complete."""
        gone = [rec.tombstone(rec.CURRENT_MEMBER, self.group_id, m) for m in self.members]
        gone += [rec.tombstone(rec.TARGET_MEMBER, self.group_id, m) for m in self.target]
        gone.append(rec.tombstone(rec.TARGET_EPOCH, self.group_id))
        gone += [rec.tombstone(rec.MEMBER, self.group_id, m) for m in self.members]
        gone += [rec.tombstone(rec.REGEX, self.group_id, r) for r in self.regexes]
        gone.append(rec.tombstone(rec.GROUP_EPOCH, self.group_id))
        return gone

    def validate(self) -> None:
        """Assert every invariant; for tests, after each step."""
        seen: dict[tuple[TopicId, int], str] = {}
        for member in self.members.values():
            for owned in (member.assigned, member.pending_revocation):
                for topic_id, partitions in owned.items():
                    for partition in partitions:
                        assert seen.setdefault((topic_id, partition), member.member_id) == (
                            member.member_id
                        ), f"{topic_id}-{partition} has two owners"
                        assert self.owners[topic_id][partition] == member.member_id
            for topic_id in member.assigned:
                pending = member.pending_revocation.get(topic_id, {})
                assert member.assigned[topic_id].keys().isdisjoint(pending)
        assert sum(len(owners) for owners in self.owners.values()) == len(seen)
        for instance_id, member_id in self.static_members.items():
            assert self.members[member_id].instance_id == instance_id
        assert self.target_epoch <= self.group_epoch


def _described(member: ConsumerGroupMember, value: rec.MemberMetadata) -> ConsumerGroupMember:
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex or None,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


def _placed(member: ConsumerGroupMember, value: rec.CurrentMember) -> ConsumerGroupMember:
    epoch = value.member_epoch
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=rec.owned_partitions(value.assigned_partitions, epoch),
        pending_revocation=rec.owned_partitions(value.partitions_pending_revocation, epoch),
    )


def plain(owned: OwnedPartitions) -> Partitions:
    """The assignment without the epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
