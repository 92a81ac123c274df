"""A broker never has two replicas of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from odradek_operator.kafka.balance.goals.hard import HardGoal
from odradek_operator.kafka.balance.model import NO_BROKER, Bools, Numbers

if TYPE_CHECKING:
    from odradek_operator.kafka.balance.state import State


class DistinctBrokers(HardGoal):
    name = "distinct-brokers"
    title = "One replica of a partition per broker"

    def allowed(
        self,
        state: State,
        partition: int,
        place: int,  # noqa: ARG002
        to: Numbers,
    ) -> Bools:
        free = np.ones(len(to), dtype=np.bool_)
        for broker in state.replicas[partition].tolist():
            free &= to != broker
        return free

    def violations(self, state: State) -> int:
        ordered = np.sort(state.replicas, axis=1)
        same = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_BROKER)
        return int(same.any(axis=1).sum())
