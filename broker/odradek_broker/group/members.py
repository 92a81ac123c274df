"""The state that consumer, share and streams groups have in common: epochs and members.

Group epoch 5, target epoch 4: the members' target is about to be computed anew. The classic
protocol has generations instead, and a class of its own.
"""

from typing import Generic, Protocol, TypeVar

from odradek_protocol.error_codes import ErrorCode, KafkaError


class GroupMember(Protocol):
    @property
    def member_epoch(self) -> int: ...


MemberT = TypeVar("MemberT", bound=GroupMember)


class GroupOfMembers(Generic[MemberT]):
    def __init__(self, group_id: str, first_epoch: int = 0) -> None:
        self.group_id = group_id
        self.group_epoch = first_epoch
        self.metadata_hash = 0
        self.target_epoch = first_epoch
        self.target_timestamp_ms = 0
        self.members: dict[str, MemberT] = {}

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def member_count(self) -> int:
        return len(self.members)

    def member(self, member_id: str) -> MemberT:
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.unknown_member_id, message)
        return member

    def committing_member(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool
    ) -> MemberT | None:
        """The member that commits offsets; None if the commit needs none.

        An empty group takes commits of clients that only use it for offsets, and a transaction may
        commit without naming a member.
        """
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return None
        return self.member(member_id)

    def fetching_member(self, member_id: str | None, epoch: int) -> MemberT | None:
        """The member that reads offsets; None for an admin client: its epoch is below 0."""
        return None if member_id is None and epoch < 0 else self.member(member_id or "")


def newer_epoch(error: ErrorCode, epoch: int, member: GroupMember) -> KafkaError:
    return KafkaError(
        error,
        f"Received member epoch {epoch} is newer than current member epoch {member.member_epoch}.",
    )


def wrong_epoch(error: ErrorCode, epoch: int, member: GroupMember) -> KafkaError:
    return KafkaError(
        error,
        f"The received member epoch {epoch} does not match the expected member epoch "
        f"{member.member_epoch}.",
    )
