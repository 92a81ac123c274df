"""The load of each replica over the last minute, hour and day. Does no I/O; the time is given.

    history.sample(loads, now_ms, cpu_s)     every SAMPLE_SECONDS; a generator, in slices
    window = history.window("hour", now_ms, cpu_s)
    window.rates(load)                       per second, in the order of COUNTERS
    window.cpu(load)                         cores, estimated

A sample has the counters of all replicas at one time. A window is the difference between now and
a sample that is as old as the window, or up to a quarter older; each window keeps samples a
quarter of it apart:

    minute   every 15 s     5 samples       covers 60 to 75 s
    hour     every 15 min   5 samples       covers 60 to 75 min
    day      every 6 h      5 samples       covers 24 to 30 h

A broker that started two hours ago has a day window of two hours; `Window.seconds` says so. A
sample costs 64 bytes per replica: 1,000 replicas have 15 samples in 960 kB.

CPU is an estimate: what this process used, divided among its replicas in proportion to COSTS.
"""

import itertools
from array import array
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from odradek_broker.partition.load import COUNTERS, ReplicaLoad

SAMPLE_SECONDS: Final = 15.0
PARTS: Final = 4  # of a window: how exact its length is
WINDOWS: Final = {"minute": 60.0, "hour": 3_600.0, "day": 86_400.0}  # seconds
PER_STEP: Final = 1_000  # replicas that are sampled before other work gets its turn: 1 ms
WIDTH: Final = len(COUNTERS)
# A timer is never early, but may be a little late: such a sample still counts for its quarter.
SLACK_MS: Final = 1_000.0

# CPU µs of a compiled broker per unit of each counter. Requests: `make bench-instructions` and the
# small requests of docs/benchmarks.md. Bytes: its s/GB for large batches and for sendfile.
COSTS: Final = (0.7e-3, 0.0, 14.0, 0.3e-3, 12.0, 0.3e-3, 0.7e-3, 8.0)


@dataclass(slots=True)
class Sample:
    at_ms: float
    cpu_s: float
    counters: "array[int]" = field(default_factory=lambda: array("q"))  # WIDTH per place


@dataclass(slots=True)
class Window:
    """The load since `start`."""

    start: Sample
    now_ms: float
    cpu_s: float  # of the process now
    cost: float = 0.0  # of all replicas since then, in µs

    @property
    def seconds(self) -> float:
        return max(0.0, (self.now_ms - self.start.at_ms) / 1000.0)

    @property
    def cpu_used(self) -> float:
        """Cores that the process used on average."""
        return (self.cpu_s - self.start.cpu_s) / self.seconds if self.seconds else 0.0

    def _grown(self, load: ReplicaLoad) -> Iterable[int]:
        now, at = load.counters(), load.at * WIDTH
        before = self.start.counters[at : at + WIDTH]
        if load.at < 0 or load.since_ms >= self.start.at_ms or len(before) < WIDTH:
            return now  # it is younger than the window
        return [count - old for count, old in zip(now, before, strict=True)]

    def _seconds_of(self, load: ReplicaLoad) -> float:
        return max(0.0, (self.now_ms - max(load.since_ms, self.start.at_ms)) / 1000.0)

    def rates(self, load: ReplicaLoad) -> tuple[float, ...]:
        """Per second; of a replica that was opened during the window, since then."""
        seconds = self._seconds_of(load)
        if seconds <= 0:
            return (0.0,) * WIDTH
        return tuple(count / seconds for count in self._grown(load))

    def cost_of(self, load: ReplicaLoad) -> float:
        return sum(c * price for c, price in zip(self._grown(load), COSTS, strict=True))

    def cpu(self, load: ReplicaLoad) -> float:
        """Its share of `cpu_used`."""
        return self.cpu_used * self.cost_of(load) / self.cost if self.cost else 0.0


class LoadHistory:
    """Invariant: the samples of a window are ordered by time, at most PARTS + 1 of them."""

    def __init__(self, now_ms: float, cpu_s: float) -> None:
        start = Sample(now_ms, cpu_s)
        self._kept: dict[str, list[Sample]] = {name: [start] for name in WINDOWS}

    def sample(self, loads: Collection[ReplicaLoad], now_ms: float, cpu_s: float) -> Iterator[None]:
        """Of all replicas that the broker has now."""
        sample = Sample(now_ms, cpu_s)
        counters = sample.counters
        everyone = list(loads)
        self._give_places(everyone)
        for number, load in enumerate(everyone):
            at = load.at * WIDTH
            if len(counters) < at + WIDTH:
                counters.frombytes(bytes(counters.itemsize * (at + WIDTH - len(counters))))
            counters[at : at + WIDTH] = array("q", load.counters())
            if number % PER_STEP == PER_STEP - 1:
                yield None
        self._keep(sample)

    def _give_places(self, loads: list[ReplicaLoad]) -> None:
        """A replica keeps its place. The place of one that is gone goes to a younger one: that is
        younger than every sample with the old one, too."""
        taken = {load.at for load in loads}
        free = (at for at in itertools.count() if at not in taken)
        for load in loads:
            if load.at < 0:
                load.at = next(free)

    def _keep(self, sample: Sample) -> None:
        for name, seconds in WINDOWS.items():
            kept = self._kept[name]
            if sample.at_ms - kept[-1].at_ms + SLACK_MS < 1000.0 * seconds / PARTS:
                continue
            kept.append(sample)
            # The second one is old enough to be the start of the window from now on.
            while len(kept) > 1 and sample.at_ms - kept[1].at_ms + SLACK_MS >= 1000.0 * seconds:
                del kept[0]

    def window(
        self, name: str, loads: Iterable[ReplicaLoad], now_ms: float, cpu_s: float
    ) -> Window:
        """Raises KeyError if there is no such window. `loads`: of all replicas."""
        window = Window(self._kept[name][0], now_ms, cpu_s)
        window.cost = sum(window.cost_of(load) for load in loads)
        return window

    def validate(self) -> None:
        """Checks the invariant; tests call it after each step."""
        for kept in self._kept.values():
            times = [sample.at_ms for sample in kept]
            assert times == sorted(times)
            assert 1 <= len(times) <= PARTS + 2, times
