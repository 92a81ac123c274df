"""Moves between the log directories of a broker: off directories that are removed, or hot ones.

    relocate(
        [Directory(0, "/a", 1e12), Directory(0, "/b", 1e12)],
        [Placed(TopicPartition("orders", 0), 0, "/a", 5e9)],
        remove=frozenset({(0, "/a")}),
    )

Such a move (AlterReplicaLogDirs) copies within the broker: no other broker notices. Between
brokers the search decides; the receiving broker chooses the directory itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek_operator.kafka.balance.repair import UnmetGoal
from odradek_protocol.ids import TopicPartition

HOT = 0.8  # of the room of a directory


class Directory(NamedTuple):
    broker: int
    path: str
    room_bytes: float  # for replicas: what they use now and what is free


class Placed(NamedTuple):
    """A replica in its directory."""

    partition: TopicPartition
    broker: int
    path: str
    size_bytes: float


class DirectoryMove(NamedTuple):
    partition: TopicPartition
    broker: int
    src: str
    to: str
    size_bytes: float
    why: str


def relocate(
    directories: Sequence[Directory],
    replicas: Iterable[Placed],
    remove: frozenset[tuple[int, str]] = frozenset(),
) -> tuple[list[DirectoryMove], list[UnmetGoal]]:
    """Empties the directories in `remove`; without any, cools hot directories. Largest first."""
    room = {(d.broker, d.path): d.room_bytes for d in directories}
    if unknown := sorted(remove - room.keys()):
        raise ValueError(f"broker {unknown[0][0]} has no log directory {unknown[0][1]}")
    placed = sorted(replicas, key=lambda r: (-r.size_bytes, r.broker, r.partition))
    used = dict.fromkeys(room, 0.0)
    for replica in placed:
        used[replica.broker, replica.path] += replica.size_bytes
    moves, problems = [], []
    for replica in placed:
        here, size = (replica.broker, replica.path), replica.size_bytes
        hot = used[here] > HOT * room[here]
        if here not in remove and (remove or not hot):
            continue
        limit = 1.0 if here in remove else HOT
        others = [
            d
            for d in room
            if d[0] == replica.broker and d not in remove and d != here
            if used[d] + size <= limit * room[d]
        ]
        if others:
            to = min(others, key=lambda d: ((used[d] + size) / room[d], d[1]))
            used[here] -= size
            used[to] += size
            why = "the directory is removed" if here in remove else "the directory is hot"
            moves.append(DirectoryMove(replica.partition, *here, to[1], size, why))
        elif here in remove:
            message = f"{replica.partition} cannot leave {replica.path} of broker {replica.broker}"
            problems.append(UnmetGoal("remove-disks", f"{message}: no other directory has room"))
    return moves, problems
