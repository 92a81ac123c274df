"""Excluded, leaving and dead brokers receive nothing; excluded topics do not move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from odradek_operator.kafka.balance.goals.hard import HardGoal
from odradek_operator.kafka.balance.model import NO_BROKER, Bools, Numbers

if TYPE_CHECKING:
    from odradek_operator.kafka.balance.state import State


class Exclusions(HardGoal):
    name = "exclusions"
    title = "Excluded brokers and topics"

    def allowed(
        self,
        state: State,
        partition: int,
        place: int,  # noqa: ARG002
        to: Numbers,
    ) -> Bools:
        if state.cluster.fixed[partition]:
            return np.zeros(len(to), dtype=np.bool_)
        return state.open.take(to)

    def violations(self, state: State) -> int:
        """Replicas that came to a closed broker, or of a topic that had to stay."""
        changed = state.replicas != state.cluster.replicas
        old = state.cluster.replicas
        came = ~(state.replicas[:, :, None] == old[:, None, :]).any(axis=2) & (
            state.replicas != NO_BROKER
        )
        closed = came & ~state.open[state.replicas]
        return int(closed.sum() + (changed.any(axis=1) & state.cluster.fixed).sum())
