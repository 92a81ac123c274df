"""CPU seconds and resident memory of process trees.

    before = cpu_s(pids); …load…; cpu_s(pids) - before      rss_bytes(pids)

A tree is the server's process and all of its descendants, so that helper processes count too. The
kernel counts CPU time in ticks of 10 ms, so a short load has no meaningful number.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import psutil

MB = 1_000_000


def tree(pid: int) -> list[psutil.Process]:
    """The process and its descendants that live now."""
    server = psutil.Process(pid)
    return [server, *server.children(recursive=True)]


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time of the processes so far."""
    times = [process.cpu_times() for pid in pids for process in tree(pid)]
    return float(sum(one.user + one.system for one in times))


def rss_bytes(pids: Iterable[int]) -> int:
    return sum(process.memory_info().rss for pid in pids for process in tree(pid))


@dataclass
class Meter:
    """Wall time and the servers' CPU time between `with` and its end; of several, their sums."""

    pids: list[int]
    wall_s: float = 0.0
    cpu_s: float = 0.0
    _began: float = field(default=0.0, repr=False)
    _cpu_began: float = field(default=0.0, repr=False)

    def __enter__(self) -> Meter:
        self._cpu_began = cpu_s(self.pids)
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s += time.perf_counter() - self._began
        self.cpu_s += cpu_s(self.pids) - self._cpu_began

    def bulk(self, payload_bytes: int) -> dict[str, float]:
        """The three numbers of every case that moves bytes."""
        return {
            "MB/s": payload_bytes / MB / self.wall_s,
            "broker CPU s/GB": self.cpu_s / (payload_bytes / 1e9),
            "RSS MB": rss_bytes(self.pids) / MB,
        }
