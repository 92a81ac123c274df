"""A hard goal: a rule about single replicas that no step may break."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from odradek_operator.kafka.balance.model import Bools, Numbers

if TYPE_CHECKING:
    from odradek_operator.kafka.balance.state import State


class HardGoal(ABC):
    name = ""
    title = ""
    of_capacity = False  # whether the load of brokers matters

    @abstractmethod
    def allowed(self, state: State, partition: int, place: int, to: Numbers) -> Bools:
        """For each of the brokers `to`: whether this replica may move there."""

    @abstractmethod
    def violations(self, state: State) -> int:
        """How many replicas, partitions or brokers break the rule."""
