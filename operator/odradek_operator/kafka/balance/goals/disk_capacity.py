"""No broker gets more bytes than it has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_operator.kafka.balance.goals.hard import HardGoal
from odradek_operator.kafka.balance.model import Bools, Numbers

if TYPE_CHECKING:
    from odradek_operator.kafka.balance.state import State


class DiskCapacity(HardGoal):
    name = "disk-capacity"
    title = "Room on disks"
    of_capacity = True
    largest_first = True  # of a broker that has more

    def allowed(
        self,
        state: State,
        partition: int,
        place: int,  # noqa: ARG002
        to: Numbers,
    ) -> Bools:
        used = state.used_bytes.take(to) + state.cluster.size_bytes[partition]
        fits: Bools = used <= state.cluster.disk_bytes_max.take(to)
        return fits

    def over(self, state: State) -> Bools:
        """B: the brokers that have more bytes than their disks may use."""
        found: Bools = state.used_bytes > state.cluster.disk_bytes_max
        return found

    def violations(self, state: State) -> int:
        return int(self.over(state).sum())
