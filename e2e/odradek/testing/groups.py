"""The consumer groups of a Kafka under test: their lag, and the end of a member's session."""

from __future__ import annotations

from odradek.testing.exchange import spans
from odradek_protocol.client import ApiKey, KafkaClient, Struct
from odradek_protocol.client.admin.groups import (
    DEAD,
    GroupDescription,
    committed_offsets,
    describe_group,
    list_groups,
)
from odradek_protocol.client.errors import BrokerError, raise_error_in
from odradek_protocol.client.routes import Coordinator, CoordinatorType
from odradek_protocol.ids import TopicPartition
from odradek_testkit.waiting import wait_until

LEAVES = -1  # the member epoch of a heartbeat with which a member leaves
POLL_S = 0.01


class Groups:
    """`kafka.groups`."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    def list(self) -> list[str]:
        return [listing.group_id for listing in list_groups(self._client)]

    def describe(self, group: str) -> GroupDescription:
        return describe_group(self._client, group)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        found = committed_offsets(self._client, group)
        return {place: committed.offset for place, committed in found.items()}

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """Records behind the end, for each partition that the group has committed or is assigned.

        A partition without a commit counts from its first record.
        """
        committed = self.committed(group)
        assigned = {p for member in self.describe(group).members for p in member.assignment}
        places = sorted({*committed, *assigned})
        if not places:
            return {}
        return {
            place: max(0, span.end - committed.get(place, span.start))
            for place, span in spans(self._client, places).items()
        }

    def wait_for(self, group: str, lag: int, timeout_s: float) -> None:
        """Raises AssertionError with the lag of each partition and the state of the group."""
        found: dict[TopicPartition, int] = {}

        def caught_up() -> bool:
            nonlocal found
            found = self.lag(group)
            return bool(found) and sum(found.values()) <= lag

        try:
            wait_until(caught_up, "", timeout_s, poll_s=POLL_S)
        except AssertionError:
            raise AssertionError(
                f"group {group!r} is {sum(found.values())} records behind after {timeout_s:g} s, "
                f"expected at most {lag}: {self._state(group, found)}"
            ) from None

    def _state(self, group: str, lag: dict[TopicPartition, int]) -> str:
        described = self.describe(group)
        if described.state == DEAD:
            others = ", ".join(self.list()) or "none"
            return f"there is no such group (groups: {others})"
        behind = "".join(f"\n  {place}: {count} behind" for place, count in lag.items())
        members = ", ".join(member.client_id for member in described.members) or "none"
        nothing = "\n  it has committed nothing and has no partitions assigned"
        return f"state {described.state}, members: {members}{behind or nothing}"

    def expire_member(self, group: str, member_id: str | None) -> None:
        """The member learns of it as of a timed-out session: UNKNOWN_MEMBER_ID at its next
        heartbeat."""
        described = self.describe(group)
        members = [m for m in described.members if member_id in (None, m.member_id)]
        if not members:
            present = ", ".join(m.member_id for m in described.members) or "none"
            raise AssertionError(
                f"group {group!r} has no member {member_id or ''}; members: {present}"
            )
        route = Coordinator(CoordinatorType.GROUP, group)
        for member in members:
            if described.type == "Consumer":
                request = Struct(group_id=group, member_id=member.member_id, member_epoch=LEAVES)
                answer = self._client.call(route, ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
            else:
                leaving = Struct(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    reason="odradek.testing expired this member",
                )
                request = Struct(group_id=group, member_id=member.member_id, members=[leaving])
                answer = self._client.call(route, ApiKey.LEAVE_GROUP, request)
                for left in answer.members:
                    _raise(left, member.member_id)
            raise_error_in(answer)


def _raise(left: Struct, member_id: str) -> None:
    if left.error_code:
        raise BrokerError(left.error_code, f"expire member {member_id}")
