"""The ports of a broker in testing mode: a clock that can be advanced, a disk that can be full."""

from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.disk import DirProbe, DiskUsage, RealDisk
from odradek_broker.testing.faults import Faults


class ShiftedClock:
    """The system's clock plus what tests have added.

    Logs, groups and transactions get this clock. The quorum, sessions of brokers and replication
    keep the system's: a cluster whose time jumps by a day does not lose its leaders.
    """

    def __init__(self) -> None:
        self._system = SystemClock()
        self._shift_ms = 0

    def now_ms(self) -> int:
        return self._system.now_ms() + self._shift_ms

    def monotonic_ms(self) -> float:
        return self._system.monotonic_ms() + self._shift_ms

    def advance(self, ms: int) -> None:
        assert ms >= 0, "time does not go back"
        self._shift_ms += ms


class LimitedDisk(RealDisk):
    """The real disk, which reports at most `free_bytes` of free space."""

    def __init__(self) -> None:
        super().__init__()
        self.free_bytes: int | None = None  # None: what the file system has

    def usage(self, path: str) -> DiskUsage:
        return self._limited(super().usage(path))

    def probe(self, path: str) -> DirProbe:
        found = super().probe(path)
        return found._replace(usage=self._limited(found.usage))

    def _limited(self, usage: DiskUsage) -> DiskUsage:
        if self.free_bytes is None:
            return usage
        return usage._replace(usable_bytes=min(usage.usable_bytes, self.free_bytes))


class TestingMode:
    """Made by main.py if the flag is given; wiring.py and broker.py use what is in it."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    def __init__(self, control_path: str) -> None:
        self.control_path = control_path
        self.clock = ShiftedClock()
        self.disk = LimitedDisk()
        self.faults = Faults()
