"""Whether the member epoch of a heartbeat is acceptable: one rule for consumer and streams groups.

check_epoch("consumer", member, request.member_epoch, lambda: is_subset(owned, member.assigned))
"""

from collections.abc import Callable
from typing import Protocol

from odradek_protocol.error_codes import ErrorCode, KafkaError


class HasEpochs(Protocol):
    @property
    def member_epoch(self) -> int: ...

    @property
    def previous_member_epoch(self) -> int: ...


def check_epoch(
    kind: str, member: HasEpochs, received: int, owns_no_more: Callable[[], bool]
) -> None:
    """Accepts the member's epoch, or the previous one if the last response may be lost.

    `owns_no_more`: the member reported what it owns, and owns nothing besides its assignment.
    """
    if received in (0, member.member_epoch):
        return
    size = "greater" if received > member.member_epoch else "smaller"
    lost_response = (
        size == "smaller" and received == member.previous_member_epoch and owns_no_more()
    )
    if not lost_response:
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"The {kind} group member has a {size} member epoch ({received}) than the one known "
            f"by the group coordinator ({member.member_epoch}). The member must abandon all its "
            "partitions and rejoin.",
        )
