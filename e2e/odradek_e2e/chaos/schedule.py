"""The faults of a round: a pure function of its seed.

    plan(7, seconds=90).episodes[0]  →  Episode("kill", "leader", 3, lasts_s=4.1, rest_s=1.2, …)

A round is one cluster. Its episodes are carried out one after the other (faults.py), while all
workloads run and leaders and replicas move (workloads/admin.py). An episode ends with its fault
healed, but not with the cluster recovered: the next one may begin in the middle of an election.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

TARGETS = ("leader", "controller", "any")
DISKS = ("memory", "loop")


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how often, and for how long."""

    name: str
    weight: int
    shortest_s: float
    longest_s: float
    does: str


KINDS = (
    Kind("kill", 10, 0.5, 6.0, "SIGKILL of one broker, started again"),
    Kind("kill-two", 3, 1.0, 6.0, "SIGKILL of two brokers a moment apart"),
    Kind("kill-all", 1, 0.2, 1.0, "SIGKILL of every broker, all started again"),
    Kind("pause", 8, 1.0, 8.0, "SIGSTOP of one broker, then SIGCONT"),
    Kind("stop", 4, 0.5, 4.0, "SIGTERM of one broker, started again"),
    Kind("roll", 2, 0.2, 1.0, "SIGTERM of one broker after the other, each started again at once"),
    Kind("isolate", 5, 2.0, 8.0, "no packet between one broker and the others; clients reach it"),
    Kind("isolate-fully", 3, 2.0, 8.0, "no packet between one broker and everybody"),
    Kind("cut-outgoing", 5, 2.0, 8.0, "packets of one broker to the others are dropped"),
    Kind("cut-incoming", 5, 2.0, 8.0, "packets of the others to one broker are dropped"),
    Kind("cut-clients", 3, 2.0, 6.0, "packets of one broker to the clients are dropped"),
    Kind("slow-links", 4, 3.0, 8.0, "60 to 160 ms of delay, reordering, in both directions"),
    Kind("lossy-links", 4, 3.0, 8.0, "12 % of packets lost and 10 % duplicated"),
    Kind("flapping-link", 2, 3.0, 8.0, "one broker cut off and back every 0.4 s"),
    Kind("disk-full", 4, 2.0, 6.0, "no space left on one broker's file system"),
    Kind("disk-fails", 4, 1.0, 4.0, "EIO, and what was in the page cache is lost; then killed"),
    Kind("clock", 4, 2.0, 8.0, "one broker's wall clock is an hour or a day off, then right again"),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True)
class Episode:
    """One fault: `target` is resolved when it begins, `broker` is who is meant by "any"."""

    kind: str
    target: str
    broker: int
    lasts_s: float
    rest_s: float  # until the next episode begins
    choice: int  # for what else the fault has to choose

    def __str__(self) -> str:
        whom = f"broker {self.broker}" if self.target == "any" else f"the {self.target}"
        return f"{self.kind} of {whom} for {self.lasts_s:.1f} s"


@dataclass(frozen=True)
class Plan:
    """A round: its cluster, and its episodes in order."""

    seed: int
    size: int
    disks: tuple[str, ...]  # of brokers 1, 2, …
    group_protocol: str
    episodes: tuple[Episode, ...]


def plan(seed: int, seconds: float, kinds: tuple[str, ...] = ()) -> Plan:
    """Episodes for so many seconds; `kinds` limits them to some of KINDS."""
    rng = random.Random(f"chaos {seed}")
    size = rng.choice((3, 3, 3, 5))
    loop = rng.randrange(size)
    chosen = [BY_NAME[name] for name in kinds] or list(KINDS)
    weights = [kind.weight for kind in chosen]
    episodes: list[Episode] = []
    left_s = seconds
    while left_s > 0:
        kind = rng.choices(chosen, weights)[0]
        lasts_s = rng.uniform(kind.shortest_s, kind.longest_s)
        rest_s = rng.choice((0.0, 0.5, 2.0, 5.0)) * rng.random() + 0.2
        target, broker = rng.choice(TARGETS), rng.randint(1, size)
        if kind.name == "disk-fails":
            target, broker = "any", loop + 1
        episodes.append(
            Episode(kind.name, target, broker, round(lasts_s, 2), round(rest_s, 2),
                    rng.randrange(1 << 30))
        )  # fmt: skip
        left_s -= lasts_s + rest_s
    disks = tuple("loop" if i == loop else "memory" for i in range(size))
    return Plan(seed, size, disks, rng.choice(("classic", "consumer")), tuple(episodes))
