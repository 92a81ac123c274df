"""The four states of a partition and the steps between them, as a table.

    NonExistent → New → Online ⇄ Offline → NonExistent

New           created, without a leader yet
Online        has a live leader
Offline       has no live leader; also the last state before deletion
NonExistent   not known to the controller (any more)

`context.py` moves partitions; `docs` draws the diagram from this table.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from odradek_broker.controller.state_machine import StateMachine
from odradek_protocol.ids import TopicId


class PartitionState(Enum):
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"
    NON_EXISTENT = "NonExistentPartition"


TRANSITIONS: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.NON_EXISTENT: frozenset({PartitionState.NEW}),
    PartitionState.NEW: frozenset({PartitionState.ONLINE}),
    # Online → Online: the leader changed.
    PartitionState.ONLINE: frozenset({PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.ONLINE, PartitionState.NON_EXISTENT}),
}


class PartitionKey(NamedTuple):
    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"partition {self.topic_id}-{self.partition}"


PartitionStates = StateMachine[PartitionKey, PartitionState]


def partition_states(wall_ms: Callable[[], int] = lambda: 0) -> PartitionStates:
    return StateMachine(TRANSITIONS, PartitionState.NON_EXISTENT, wall_ms)
