"""Deletion of topics and replicas: states first, metadata next, files last.

    1. the replicas' states: Offline, then ReplicaDeletionStarted
    2. the metadata: RemoveTopicRecord is committed, so the topic no longer exists
    3. the files: each broker removes its own when it applies that record

The record makes it crash-safe: a controller or broker that was down finds it in the log and
continues. A replica whose broker is down is ineligible for deletion; when the broker is back, the
deletion is retried, and it is done once the broker reports (in its heartbeat) that it has applied
the metadata up to the record. A replica that a reassignment removes is deleted in the same way.

This module keeps the deletions that a broker has not confirmed yet. They are not in the log: a
new controller does not wait for them, and they serve only for display.
"""

from collections.abc import Iterator

from odradek_broker.controller.replica_states import (
    PartitionAndReplica,
    ReplicaState,
    ReplicaStates,
)
from odradek_protocol.ids import BrokerId, Offset


class Deletions:
    def __init__(self, states: ReplicaStates) -> None:
        self._states = states
        self._pending: dict[BrokerId, dict[PartitionAndReplica, Offset]] = {}

    def start(self, key: PartitionAndReplica, offset: Offset, *, live: bool) -> None:
        """`offset`: of the record that removed the replica."""
        if not self._states.move(key, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED):
            return
        self._pending.setdefault(key.replica, {})[key] = offset
        if not live:
            self._states.move(key, ReplicaState.DELETION_INELIGIBLE)

    def broker_down(self, broker_id: BrokerId) -> None:
        for key in self._pending.get(broker_id, ()):
            if self._states.state(key) is ReplicaState.DELETION_STARTED:
                self._states.move(key, ReplicaState.DELETION_INELIGIBLE)

    def broker_up(self, broker_id: BrokerId) -> None:
        """The broker is back: retries its ineligible deletions."""
        for key in self._pending.get(broker_id, ()):
            if self._states.state(key) is ReplicaState.DELETION_INELIGIBLE:
                self._states.move(key, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED)

    def broker_at(self, broker_id: BrokerId, offset: Offset) -> None:
        """The broker has applied the metadata up to `offset`."""
        pending = self._pending.get(broker_id)
        if pending:
            for key in [key for key, at in pending.items() if at <= offset]:
                if self._states.state(key) is ReplicaState.DELETION_STARTED:
                    self._done(key)

    def broker_gone(self, broker_id: BrokerId) -> None:
        """The broker was unregistered: its files are not tracked any more."""
        self.broker_up(broker_id)
        for key in list(self._pending.get(broker_id, ())):
            self._done(key)

    def forget(self, key: PartitionAndReplica) -> bool:
        """The broker gets the replica again before it has confirmed the deletion of the old one. It
        does both in the order of the log. True if there was such a deletion."""
        if key not in self._pending.get(key.replica, ()):
            return False
        if self._states.state(key) is ReplicaState.DELETION_INELIGIBLE:
            self._states.move(key, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED)
        self._done(key)
        return True

    def _done(self, key: PartitionAndReplica) -> None:
        path = (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT)
        if self._states.move(key, *path):
            pending = self._pending[key.replica]
            del pending[key]
            if not pending:
                del self._pending[key.replica]

    # -- pending deletions -----------------------------------------------------------------

    def __iter__(self) -> Iterator[PartitionAndReplica]:
        return (key for pending in self._pending.values() for key in pending)

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))
