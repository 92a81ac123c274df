"""No broker gets more replicas than its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_operator.kafka.balance.goals.hard import HardGoal
from odradek_operator.kafka.balance.model import Bools, Numbers

if TYPE_CHECKING:
    from odradek_operator.kafka.balance.state import State


class ReplicaCapacity(HardGoal):
    name = "replica-capacity"
    title = "Replicas per broker"
    of_capacity = True
    largest_first = False  # of a broker that has more

    def allowed(
        self,
        state: State,
        partition: int,  # noqa: ARG002
        place: int,  # noqa: ARG002
        to: Numbers,
    ) -> Bools:
        fits: Bools = state.held.take(to) + 1 <= state.cluster.replicas_max.take(to)
        return fits

    def over(self, state: State) -> Bools:
        """B: the brokers that have more replicas than their limit."""
        found: Bools = state.held > state.cluster.replicas_max
        return found

    def violations(self, state: State) -> int:
        return int(self.over(state).sum())
