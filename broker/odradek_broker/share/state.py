"""The state of a group and a partition at the share coordinator. Does no I/O.

`batches` ascend, do not overlap, and none ends before `start_offset`. Offsets in no batch were
never delivered, or their delivery was never acknowledged.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from odradek_broker.share.share_partition import StateBatch
from odradek_broker.share.states import COMPLETE
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicId

UNINITIALIZED = -1  # a start offset that the leader has to find by share.auto.offset.reset
KEY_PARTS = 3


class Key(NamedTuple):
    group_id: str
    topic_id: TopicId
    partition: int

    @property
    def text(self) -> str:
        """The key of FindCoordinator, with which the share coordinator is found."""
        topic = urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        return f"{self.group_id}:{topic}:{self.partition}"


def parse_key(text: str) -> Key:
    """A key of FindCoordinator; KafkaError(INVALID_REQUEST) if it is none."""
    parts = text.rsplit(":", KEY_PARTS - 1)
    try:
        group_id, topic, partition = parts
        topic_id = UUID(bytes=urlsafe_b64decode(topic + "=="))
        key = Key(group_id, topic_id, int(partition))
    except ValueError:
        raise KafkaError(ErrorCode.invalid_request) from None
    if not group_id:
        raise KafkaError(ErrorCode.invalid_request)
    return key


@dataclass(frozen=True, slots=True)
class SharePartitionState:
    state_epoch: int = 0  # a larger one means that the state was initialized anew
    leader_epoch: int = -1  # of the newest leader that read or wrote
    snapshot_epoch: int = 0
    start_offset: int = UNINITIALIZED
    batches: tuple[StateBatch, ...] = ()
    complete: int = -1  # offsets from start_offset on that are done; -1 if unknown
    created_ms: int = 0
    written_ms: int = 0

    def updated(
        self, leader_epoch: int, start_offset: int, batches: tuple[StateBatch, ...], complete: int
    ) -> "SharePartitionState":
        """A start offset of -1 leaves it. It never moves back, and a record that is done stays so:
        a write may arrive twice, the second time after newer ones."""
        start = max(self.start_offset, start_offset)
        return replace(
            self,
            leader_epoch=max(leader_epoch, self.leader_epoch),
            start_offset=start,
            batches=combine(self.batches, batches, start),
            complete=complete,
        )


def combine(
    old: tuple[StateBatch, ...], new: tuple[StateBatch, ...], start: int
) -> tuple[StateBatch, ...]:
    """The newer batch counts where two overlap, unless the older one is final; nothing before
    `start` is kept."""
    final = tuple(batch for batch in old if batch.state in COMPLETE)
    kept = [part for batch in old if batch.state not in COMPLETE for part in _without(batch, new)]
    changed = [part for batch in new for part in _without(batch, final)]
    combined: list[StateBatch] = []
    for batch in sorted([*final, *kept, *changed]):
        if batch.last < start:
            continue
        batch = batch._replace(first=max(batch.first, start))
        last = combined[-1] if combined else None
        if last and last.last + 1 == batch.first and last[2:] == batch[2:]:
            combined[-1] = last._replace(last=batch.last)
        else:
            combined.append(batch)
    return tuple(combined)


def _without(batch: StateBatch, others: tuple[StateBatch, ...]) -> list[StateBatch]:
    """The parts of the batch that no other one covers."""
    parts = [batch]
    for other in others:
        if other.first > batch.last or other.last < batch.first:
            continue
        cut = []
        for part in parts:
            if part.first < other.first:
                cut.append(part._replace(last=min(part.last, other.first - 1)))
            if part.last > other.last:
                cut.append(part._replace(first=max(part.first, other.last + 1)))
        parts = cut
    return parts
