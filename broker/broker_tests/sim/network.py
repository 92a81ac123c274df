"""The network between the hosts of a world: what happens to one message.

Messages are delayed by random times, so they overtake each other; some are lost, some arrive
twice. A cut works in one direction; a partition is a set of cuts. Cuts overlap (two faults may
cut the same link), so they are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

Link: TypeAlias = tuple[int, int]  # from, to


@dataclass
class Weather:
    """The current delays, losses and duplicates of the network."""

    latency_min_ms: int = 1
    latency_max_ms: int = 8
    loss: float = 0.0
    duplication: float = 0.0
    # A few messages, and all second copies, take up to this long: newer ones overtake them.
    straggler: float = 0.0
    straggler_max_ms: int = 1500
    # A request breaks its connection: by a proxy or a full queue, while both ends are alive.
    reset: float = 0.0


class Network:
    def __init__(self, rng: Random, weather: Weather) -> None:
        self._rng = rng
        self.weather = weather
        self._cuts: Counter[Link] = Counter()

    def cut(self, links: Iterable[Link]) -> None:
        self._cuts.update(links)

    def repair(self, links: Iterable[Link]) -> None:
        self._cuts.subtract(links)

    def mend_all(self) -> None:
        self._cuts.clear()

    def is_cut(self, source: int, target: int) -> bool:
        return self._cuts[(source, target)] > 0

    def delays_ms(self, source: int, target: int) -> list[int]:
        """When the copies of a message sent now arrive; none if it is lost."""
        random = self._rng.random
        weather = self.weather
        if self._cuts[(source, target)] > 0 or random() < weather.loss:
            return []
        delays = [self._delay_ms()]
        if random() < weather.duplication:
            delays.append(self._rng.randint(0, weather.straggler_max_ms))
        return delays

    def resets(self) -> bool:
        """Whether the connection of a request sent now breaks under it."""
        return self.weather.reset > 0.0 and self._rng.random() < self.weather.reset

    def _delay_ms(self) -> int:
        weather = self.weather
        if weather.straggler and self._rng.random() < weather.straggler:
            return self._rng.randint(weather.latency_max_ms, weather.straggler_max_ms)
        return self._rng.randint(weather.latency_min_ms, weather.latency_max_ms)
