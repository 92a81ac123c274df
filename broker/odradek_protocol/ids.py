"""Identifiers and offsets under Kafka's own names.

`Offset` is an alias and not a NewType: it is used in arithmetic for every batch, where a wrapping
call per addition is measurable. Example: `str(TopicPartition("orders", 3))` is "orders-3".
"""

from typing import NamedTuple, NewType, TypeAlias
from uuid import UUID

BrokerId = NewType("BrokerId", int)
LeaderEpoch: TypeAlias = int
Offset: TypeAlias = int
ProducerId: TypeAlias = int
TopicId: TypeAlias = UUID

NO_PRODUCER_ID: ProducerId = -1
NO_LEADER_EPOCH: LeaderEpoch = -1
ZERO_UUID = UUID(int=0)
# The metadata log is next to the other logs on disk, but is not a topic that clients see.
METADATA_TOPIC = "__cluster_metadata"


class TopicPartition(NamedTuple):
    """One partition of one topic; `str()` is its directory name, `orders-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
