"""A simulated disk that stops at any single change, to test recovery from there."""

from broker_tests.sim.memory_disk import SimDisk


class Crash(BaseException):
    """The machine stops here; no code handles this exception."""


class CrashingDisk(SimDisk):
    """Stops before the n-th change after `arm(n)`; every later access fails until `disarm`."""

    def __init__(self) -> None:
        super().__init__()
        self._left: int | None = None

    def arm(self, changes: int) -> None:
        self._left = changes

    def disarm(self) -> None:
        self._left = None
        self._locks.clear()

    def check(self, path: str) -> None:
        if self._left == -1:
            raise Crash(path)
        super().check(path)

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._left = -1
                raise Crash

    def _changing_names(self, path: str) -> None:
        self._count()
        super()._changing_names(path)

    def room_for(self, more: int) -> int:  # asked by every write
        self._count()
        return super().room_for(more)

    def commit_names(self) -> None:  # at every fsync
        self._count()
        super().commit_names()
