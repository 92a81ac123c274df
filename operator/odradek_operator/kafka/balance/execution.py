"""Carrying out a proposal: which moves are next, what is throttled, what remains. Does no I/O.

Nothing is remembered: each pass compares the proposal with what is observed, so that whoever
carries it out can be killed at any time and go on with the same document.

    PENDING  the partition is where the proposal found it
    MOVING   Kafka copies replicas
    ELECTING the replicas are right, and the preferred leader does not lead yet
    DONE
    CHANGED  somebody else moved the partition since the proposal: it is left alone
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from odradek_operator.kafka.balance.document import DirectoryChange, Move, seconds
from odradek_operator.kafka.observed import Partition
from odradek_protocol.ids import TopicPartition

MOVES_MAX = 100  # partitions that move at the same time
PER_BROKER_MAX = 10  # of them to or from one broker, so that each gets a part of the throttle
BATCH_S = 60.0  # a broker gets no more than it can copy in this time, or one partition
LEADER_RATE, FOLLOWER_RATE = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
)
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class Stage(Enum):
    PENDING = "pending"
    MOVING = "moving"
    ELECTING = "electing"
    DONE = "done"
    CHANGED = "changed"


@dataclass(frozen=True)
class ExecutionProgress:
    """The state of each move, and why no further move begins, if that is the case."""

    stages: Mapping[TopicPartition, Stage]
    bytes_left: int
    seconds_left: float  # at the throttle
    hold: str = ""

    def count(self, stage: Stage) -> int:
        return sum(found is stage for found in self.stages.values())

    @property
    def finished(self) -> bool:
        return not any(
            s in (Stage.PENDING, Stage.MOVING, Stage.ELECTING) for s in self.stages.values()
        )


def place(move: Move) -> TopicPartition:
    return TopicPartition(move.topic, move.partition)


def stage(move: Move, seen: Partition | None) -> Stage:
    if seen is None:
        return Stage.CHANGED  # its topic was deleted
    if seen.target == move.after:
        if seen.moving:
            return Stage.MOVING
        return Stage.DONE if seen.leader == move.after[0] else Stage.ELECTING
    # A cancelled move leaves the old replicas, but in the order of the merged list.
    if set(seen.target) == set(move.before) and not seen.moving:
        return Stage.PENDING
    return Stage.CHANGED


def progress(
    moves: Sequence[Move],
    partitions: Mapping[TopicPartition, Partition],
    throttle: float,
    hold: str = "",
) -> ExecutionProgress:
    stages = {place(move): stage(move, partitions.get(place(move))) for move in moves}
    left = [m for m in moves if stages[place(m)] in (Stage.PENDING, Stage.MOVING)]
    return ExecutionProgress(stages, sum(m.bytes for m in left), seconds(left, throttle), hold)


def hold_reason(
    partitions: Iterable[Partition],
    live: frozenset[int],
    registered: Iterable[int],
    without: Collection[int] = (),
) -> str:
    """Why no further move may begin now: a broker is down, or a partition is below its min ISR.

    Brokers in `without` are not waited for: the moves replace them, if they are down.
    """
    away = sorted(set(registered) - live - set(without))
    if away:
        return f"broker {away[0]} is not live"
    lost = set(without) - live
    for partition in partitions:
        if lost & set(partition.settled):
            continue
        possible = min(partition.min_isr, len(partition.settled))
        if len(partition.isr) < possible:
            return f"{partition.id} has fewer replicas in sync than min.insync.replicas"
    return ""


def next_moves(moves: Sequence[Move], now: ExecutionProgress, throttle: float) -> list[Move]:
    """The pending moves that may begin, in the order of the proposal.

    A batch is limited by the bandwidth of each broker: ten partitions of a megabyte begin together,
    of a terabyte one at a time.
    """
    if now.hold:
        return []
    busy: Counter[int] = Counter()
    copied: Counter[int] = Counter()

    def begin(move: Move) -> None:
        busy.update(_involved(move))
        copied.update(dict.fromkeys(_involved(move), move.bytes))

    def fits(broker: int, move: Move) -> bool:
        if not busy[broker]:
            return True
        room = copied[broker] + move.bytes <= BATCH_S * throttle
        return busy[broker] < PER_BROKER_MAX and room

    for move in moves:
        if now.stages[place(move)] is Stage.MOVING:
            begin(move)
    room = MOVES_MAX - now.count(Stage.MOVING)
    chosen: list[Move] = []
    for move in moves:
        if len(chosen) >= room:
            break
        if now.stages[place(move)] is not Stage.PENDING:
            continue
        if all(fits(broker, move) for broker in _involved(move)):
            begin(move)
            chosen.append(move)
    return chosen


def throttled_topics(moves: Iterable[Move]) -> dict[str, dict[str, str]]:
    """Topic → its settings: old replicas send, new ones receive."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for move in moves:
        if move.new:
            senders, receivers = found.setdefault(move.topic, ([], []))
            senders += [f"{move.partition}:{broker}" for broker in move.before]
            receivers += [f"{move.partition}:{broker}" for broker in move.new]
    return {
        topic: {LEADER_REPLICAS: ",".join(senders), FOLLOWER_REPLICAS: ",".join(receivers)}
        for topic, (senders, receivers) in found.items()
    }


def throttled_brokers(moves: Iterable[Move]) -> list[int]:
    return sorted({b for move in moves if move.new for b in (*move.before, *move.new)})


def reversed_moves(moves: Iterable[Move]) -> list[Move]:
    """The moves that undo these: what `cancel --back` carries out."""
    return [
        Move(m.topic, m.partition, m.after, m.before, m.bytes, m.seconds, "moved back")
        for m in moves
    ]


def reversed_directories(changes: Iterable[DirectoryChange]) -> list[DirectoryChange]:
    """The same for moves between directories."""
    return [
        DirectoryChange(c.topic, c.partition, c.broker, c.after, c.before, c.bytes, "moved back")
        for c in changes
    ]


def _involved(move: Move) -> set[int]:
    """Brokers that send or receive; a changed order of the same replicas involves none."""
    return {*move.new, *(move.before[:1] if move.new else ())}
