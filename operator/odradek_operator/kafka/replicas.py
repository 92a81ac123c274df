"""Chooses brokers for replicas that have to move, without touching the others.

A replica that can stay keeps its position, so preferred leaders stay too. A new one goes to a rack
that the partition does not use yet (if there is one), and there to the broker with the fewest
replicas; for the first position, with the fewest preferred leaders.

With racks a: 0 3, b: 1 4, c: 2 5 and replicas (0, 1, 2) draining broker 1 gives (0, 4, 2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from odradek_operator.kafka.observed import Partition


class Load:
    """Replicas and preferred leaders per broker, updated while brokers are chosen."""

    def __init__(self, partitions: Iterable[Partition]) -> None:
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        for partition in partitions:
            self.add(partition.target)

    def add(self, replicas: Collection[int]) -> None:
        self.replicas.update(replicas)
        self.leaders.update(list(replicas)[:1])

    def take(self, replicas: Collection[int]) -> None:
        self.replicas.subtract(replicas)
        self.leaders.subtract(list(replicas)[:1])


def choose_replicas(
    current: tuple[int, ...], count: int, brokers: Mapping[int, str], load: Load
) -> tuple[int, ...] | None:
    """`count` replicas on `brokers` (id → rack); None if there are too few brokers.

    `load` is updated to the state after the move.
    """
    if count > len(brokers):
        return None
    chosen: list[int | None] = [r if r in brokers else None for r in current[:count]]
    chosen += [None] * (count - len(chosen))
    _free_shared_racks(chosen, brokers)
    load.take(current)
    for position, replica in enumerate(chosen):
        if replica is None:
            chosen[position] = _best(position, chosen, brokers, load)
    done = tuple(r for r in chosen if r is not None)
    load.add(done)
    return done


def shares_rack(replicas: Collection[int], racks: Mapping[int, str]) -> bool:
    """Whether two replicas share a rack although there are enough racks for all."""
    used = [racks[r] for r in replicas if racks.get(r)]
    return len(set(used)) < min(len(used), len(set(racks.values()) - {""}))


def _free_shared_racks(chosen: list[int | None], brokers: Mapping[int, str]) -> None:
    """Frees positions that share a rack with an earlier one, while there are unused racks."""
    racks = set(brokers.values())
    kept: set[str] = {brokers[r] for r in chosen if r is not None}
    unused = len(racks - kept)
    free = sum(r is None for r in chosen)
    seen: set[str] = set()
    for position, replica in enumerate(chosen):
        if replica is None:
            continue
        rack = brokers[replica]
        if rack in seen and unused > free:
            chosen[position] = None
            free += 1
        seen.add(rack)


def _best(position: int, chosen: list[int | None], brokers: Mapping[int, str], load: Load) -> int:
    taken = {r for r in chosen if r is not None}
    racks_taken = Counter(brokers[r] for r in taken)

    def cost(broker: int) -> tuple[int, int, int, int]:
        own = load.leaders if position == 0 else load.replicas
        return (racks_taken[brokers[broker]], own[broker], load.replicas[broker], broker)

    return min((b for b in brokers if b not in taken), key=cost)
