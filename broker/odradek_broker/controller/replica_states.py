"""The seven states of a replica and the steps between them, as a table.

    NonExistent → New → Online ⇄ Offline → DeletionStarted → DeletionSuccessful → NonExistent
                    └────────────┘ ▲  ▲            │
                          Online ──┘  └── DeletionIneligible

New                  its partition was just created, or a reassignment adds it
Online               its broker and its directory are online
Offline              its broker or its directory is offline
DeletionStarted      its topic is gone from the metadata; the broker has to remove the files
DeletionSuccessful   the broker has removed the files
DeletionIneligible   the broker is down; the deletion is retried when it is back
NonExistent          not known to the controller (any more)

`context.py` moves replicas; `docs` draws the diagram from this table.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from odradek_broker.controller.state_machine import StateMachine
from odradek_protocol.ids import BrokerId, TopicId


class ReplicaState(Enum):
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


TRANSITIONS: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.NEW}),
    ReplicaState.NEW: frozenset({ReplicaState.ONLINE, ReplicaState.OFFLINE}),
    ReplicaState.ONLINE: frozenset({ReplicaState.ONLINE, ReplicaState.OFFLINE}),
    ReplicaState.OFFLINE: frozenset(
        {ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}
    ),
    ReplicaState.DELETION_STARTED: frozenset(
        {ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE}
    ),
    ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.ONLINE, ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.NON_EXISTENT}),
}


class PartitionAndReplica(NamedTuple):
    topic_id: TopicId
    partition: int
    replica: BrokerId

    def __str__(self) -> str:
        return f"replica {self.replica} of {self.topic_id}-{self.partition}"


ReplicaStates = StateMachine[PartitionAndReplica, ReplicaState]


def replica_states(wall_ms: Callable[[], int] = lambda: 0) -> ReplicaStates:
    return StateMachine(TRANSITIONS, ReplicaState.NON_EXISTENT, wall_ms)
