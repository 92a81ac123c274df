"""Identifiers and offsets under Kafka's own names.

`Offset` is an alias and not a NewType: it takes part in arithmetic for every batch, where a
wrapping call per addition is measurable.
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
# The metadata log lies among the others on disk, but is no topic that clients see.
METADATA_TOPIC = "__cluster_metadata"


class TopicPartition(NamedTuple):
    """One partition of one topic; `str()` gives its directory name, `orders-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
