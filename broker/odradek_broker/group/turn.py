"""One decision in progress: its inputs, and the records and responses that it collects."""

from random import Random
from typing import TypeVar
from uuid import UUID

from odradek_broker.coordinator.result import (
    Answer,
    CoordinatorRecord,
    CoordinatorResult,
    DeferredResponse,
    Moment,
)
from odradek_broker.coordinator.timers import Timers
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.metrics import GroupMetrics

T = TypeVar("T")

# Keys of timers: ("session", group id, member id), ("join", group id), ("sync", group id), …
TimerKey = tuple[str, ...]


class Turn:
    """Collects records and responses; `result` makes a CoordinatorResult of them."""

    __slots__ = ("answers", "config", "metrics", "now", "records", "rng", "timers")

    def __init__(
        self,
        now: Moment,
        config: GroupConfig,
        timers: Timers[TimerKey],
        rng: Random,
        metrics: GroupMetrics,
    ) -> None:
        self.metrics = metrics
        self.now = now
        self.config = config
        self.timers = timers
        self.rng = rng
        self.records: list[CoordinatorRecord] = []
        self.answers: list[Answer] = []

    def answer(self, deferred: DeferredResponse, response: object) -> None:
        """Responds to a parked request."""
        self.answers.append((deferred, response))

    def set_timer(self, key: TimerKey, delay_ms: float) -> None:
        """Never due at once: a handler of due timers that sets one again would loop for ever."""
        self.timers.set(key, self.now.monotonic_ms + max(delay_ms, 1.0))

    def new_uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128), version=4)

    def result(
        self, response: T | DeferredResponse, *, volatile: bool, atomic: bool = True
    ) -> CoordinatorResult[T]:
        return CoordinatorResult(
            self.records, response, self.answers, volatile=volatile, atomic=atomic
        )
