"""CPU seconds and resident memory of process trees, read from /proc.

    before = cpu_s(pids); …load…; cpu_s(pids) - before      rss_bytes(pids)

A tree is the server's process and all of its descendants: what a helper process burns counts too.
CPU time comes in clock ticks of 10 ms, so short loads are not worth a number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MB = 1_000_000


def tree(pid: int) -> list[int]:
    """The process and its descendants that live now."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in children.read_text().split()]
            except OSError:
                continue  # the thread ended between the listing and the reading
    return found


def _all(pids: Iterable[int]) -> list[int]:
    return [member for pid in pids for member in tree(pid)]


def cpu_s(pids: Iterable[int]) -> float:
    ticks = 0
    for pid in _all(pids):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


def rss_bytes(pids: Iterable[int]) -> int:
    total = 0
    for pid in _all(pids):
        status = Path(f"/proc/{pid}/status").read_text()
        total += int(status.split("VmRSS:")[1].split()[0]) * 1024
    return total


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
