"""Which broker ids there are, and in which rack each one is.

Ids alternate racks: six brokers in racks a, b, c are 0:a 1:b 2:c 3:a 4:b 5:c. An id never changes
its rack, whatever happens to the list of racks or the number of brokers: existing brokers are an
input. A new broker goes to the rack with the fewest; the broker that leaves is the highest id of
the rack with the most. An id whose volume was kept returns to the rack of that volume.

Dedicated controllers have their own ids (10000, 10001 …), spread over the racks in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NO_RACK = ""
CONTROLLER_IDS = 10_000  # the first id of a dedicated controller; broker ids are smaller


@dataclass(frozen=True)
class Placement:
    brokers: Mapping[int, str]  # id → rack, desired brokers
    leaving: Mapping[int, str]  # id → rack, brokers to remove


def place_brokers(
    count: int,
    racks: Sequence[str],
    existing: Mapping[int, str],
    kept: Mapping[int, str] | None = None,
) -> Placement:
    """`racks` in the order in which they are filled; empty means one unnamed rack."""
    racks = list(racks) or [NO_RACK]
    staying = {b: rack for b, rack in existing.items() if rack in racks}
    while len(staying) > count:
        del staying[_last_of_the_largest(staying, racks)]
    taken = {*existing, *staying}
    while len(staying) < count:
        sizes = Counter(staying.values())
        rack = min(racks, key=lambda r: (sizes[r], racks.index(r)))
        broker = _new_id(rack, taken, kept or {})
        staying[broker] = rack
        taken.add(broker)
    leaving = {b: rack for b, rack in existing.items() if b not in staying}
    return Placement(dict(sorted(staying.items())), dict(sorted(leaving.items())))


def place_controllers(
    count: int, racks: Sequence[str], existing: Mapping[int, str]
) -> dict[int, str]:
    """id → rack; existing controllers stay where they are."""
    racks = list(racks) or [NO_RACK]
    ids = range(CONTROLLER_IDS, CONTROLLER_IDS + count)
    return {node: existing.get(node, racks[n % len(racks)]) for n, node in enumerate(ids)}


def is_controller(node: int) -> bool:
    """Whether the node is a dedicated controller."""
    return node >= CONTROLLER_IDS


def racks_in_use(
    named: Sequence[str], seen: Sequence[str], existing: Mapping[int, str]
) -> tuple[str, ...]:
    """The racks to use: the named ones, or those of the nodes' labels.

    A rack without nodes is kept while it has brokers: their volumes are there, and nodes come back.
    Only a list in the spec removes a rack.
    """
    if named:
        return tuple(named)
    return tuple(sorted({*seen, *existing.values()} - {NO_RACK})) or (NO_RACK,)


def _last_of_the_largest(brokers: Mapping[int, str], racks: Sequence[str]) -> int:
    sizes = Counter(brokers.values())
    rack = max(sizes, key=lambda r: (sizes[r], racks.index(r)))
    return max(b for b, at in brokers.items() if at == rack)


def _new_id(rack: str, taken: set[int], kept: Mapping[int, str]) -> int:
    if back := sorted(b for b, at in kept.items() if at == rack and b not in taken):
        return back[0]
    broker = 0
    while broker in taken or broker in kept:
        broker += 1
    return broker
