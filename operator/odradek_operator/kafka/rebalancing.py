"""The moves of an approved proposal, as actions of the plan. Does no I/O, and remembers nothing.

    plan_execution(execution, kafka, hold) -> (Throttle(…),) or (Reassign(…), …) or (Wait(…),)

Each pass compares the proposal with what is observed. Moves begin only when the throttle has been
observed on every broker and topic that they involve. It is removed when all moves are done, when
they are cancelled, and while a roll or a drain holds them: replicas of restarted brokers must not
catch up at the speed of a throttle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from odradek_operator.kafka.actions import (
    CancelMoves,
    Elect,
    MoveDirectories,
    Plan,
    Reason,
    Reassign,
    Throttle,
    Unthrottle,
    Wait,
    listed,
)
from odradek_operator.kafka.balance.document import DirectoryChange, Move
from odradek_operator.kafka.balance.execution import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ExecutionProgress,
    Stage,
    hold_reason,
    next_moves,
    place,
    progress,
    throttled_brokers,
    throttled_topics,
)
from odradek_operator.kafka.observed import LogSizes, ObservedKafka, Partition
from odradek_protocol.ids import TopicPartition

RATES = frozenset({LEADER_RATE, FOLLOWER_RATE})
REPLICAS = frozenset({LEADER_REPLICAS, FOLLOWER_REPLICAS})
DIRECTORIES_MAX = 10  # replicas of a broker that change their directory at the same time


class Purpose(Enum):
    MOVE = "move"
    STOP = "stop"  # only cancel the moves under way


@dataclass(frozen=True)
class Execution:
    """A proposal that is being carried out or cancelled."""

    owner: str  # "namespace/name" of the KafkaRebalance
    moves: Sequence[Move]
    throttle: float
    directory_moves: Sequence[DirectoryChange] = ()
    purpose: Purpose = Purpose.MOVE
    everywhere: bool = False  # its document is lost: any throttle of the cluster may be its own
    sizes: LogSizes | None = None  # only asked for if there are moves between directories
    removed: frozenset[int] = frozenset()  # brokers that the moves empty
    # Brokers that nothing waits for while they are down: they are lost, or they are removed.
    without: frozenset[int] = frozenset()

    def partitions(self, kafka: ObservedKafka) -> dict[TopicPartition, Partition]:
        wanted = {place(move) for move in self.moves}
        return {p.id: p for p in kafka.partitions if p.id in wanted}


@dataclass(frozen=True)
class Standing:
    """Where an execution is."""

    progress: ExecutionProgress
    directories: Mapping[tuple[int, TopicPartition], Stage] = field(default_factory=dict)
    throttle_left: tuple[tuple[int, ...], tuple[str, ...]] = ((), ())  # brokers, topics
    unseen: tuple[int, ...] = ()  # brokers of which it is not known whether they have a throttle
    mixed: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)

    @property
    def moving(self) -> list[TopicPartition]:
        return [p for p, stage in self.progress.stages.items() if stage is Stage.MOVING]

    @property
    def throttled(self) -> bool:
        return any(self.throttle_left) or bool(self.unseen)

    @property
    def finished(self) -> bool:
        """All moves are done, and the throttle is known to be gone."""
        busy = any(s in (Stage.PENDING, Stage.MOVING) for s in self.directories.values())
        return self.progress.finished and not busy and not self.throttled

    @property
    def stopped(self) -> bool:
        """Nothing is moving for it any more."""
        copying = self.moving or Stage.MOVING in self.directories.values()
        return not copying and not self.mixed and not self.throttled


def standing(execution: Execution, kafka: ObservedKafka, hold: str = "") -> Standing:
    partitions = execution.partitions(kafka)
    without = execution.without - kafka.live
    hold = hold or hold_reason(kafka.partitions, kafka.live, kafka.registered, without)
    now = progress(execution.moves, partitions, execution.throttle, hold)
    brokers = throttled_brokers(execution.moves)
    topics: Iterable[str] = throttled_topics(execution.moves)
    if execution.everywhere:
        brokers, topics = sorted(kafka.registered), kafka.topics
    left = (
        tuple(b for b in brokers if _rates(kafka, b)),
        tuple(t for t in topics if _replicas(kafka, t)),
    )
    registered = [b for b in brokers if b in kafka.registered and b not in without]
    unseen = tuple(b for b in registered if b not in kafka.settings)
    mixed = {
        place(m): m.before
        for m in execution.moves
        if (p := partitions.get(place(m))) is not None and not p.moving
        if p.target != m.before and set(p.target) == set(m.before) and p.target != m.after
    }
    return Standing(now, directory_stages(execution), left, unseen, mixed)


def _rates(kafka: ObservedKafka, broker: int) -> dict[str, str]:
    found = kafka.settings.get(broker, {})
    return {name: value for name in RATES if name in found and (value := found[name].value)}


def _replicas(kafka: ObservedKafka, topic: str) -> dict[str, str]:
    found = kafka.topics[topic].config if topic in kafka.topics else {}
    return {name: value for name in REPLICAS if (value := found.get(name))}


def directory_stages(execution: Execution) -> dict[tuple[int, TopicPartition], Stage]:
    """A replica is in `before`, has a future copy in `after`, or is in `after`."""
    stages = {}
    for change in execution.directory_moves:
        partition = TopicPartition(change.topic, change.partition)
        found = execution.sizes.brokers.get(change.broker) if execution.sizes else None
        at = {d.path for d in found or () if partition in d.replica_bytes}
        future = {d.path for d in found or () if partition in d.future_bytes}
        if found is None:
            stage = Stage.PENDING  # the broker does not answer
        elif change.after in at:
            stage = Stage.DONE
        elif change.after in future:
            stage = Stage.MOVING
        else:
            stage = Stage.PENDING if change.before in at and not future else Stage.CHANGED
        stages[change.broker, partition] = stage
    return stages


def moves_under_way(executions: Iterable[Execution], kafka: ObservedKafka) -> tuple[str, list[str]]:
    """The KafkaRebalance whose replicas move now, and which partitions."""
    for execution in executions:
        found = standing(execution, kafka)
        moving = [str(p) for p in found.moving]
        moving += [f"{p} of broker {b}" for (b, p), s in found.directories.items()
                   if s is Stage.MOVING]  # fmt: skip
        if moving:
            return execution.owner, moving
    return "", []


def plan_execution(execution: Execution, kafka: ObservedKafka, hold: str = "") -> Plan:
    """`hold`: why no further move may begin, such as a roll."""
    now = standing(execution, kafka, hold)
    if execution.purpose is Purpose.STOP:
        return _stop(execution, now)
    who, progress_ = execution.owner, now.progress
    plan: Plan = ()
    if ready := tuple(p for p, stage in progress_.stages.items() if stage is Stage.ELECTING):
        why = f"{len(ready)} partitions have moved: their preferred leaders are elected"
        plan = (Elect(ready, Reason("PreferredLeaders", why), who),)
    chosen = next_moves(execution.moves, progress_, execution.throttle)
    copies = [m for m in chosen if m.new]
    quiet = not now.moving and not copies
    if quiet and any(now.throttle_left):
        why = "no replica is copied: " + (progress_.hold or "all moves are done")
        plan = (*plan, _unthrottle(execution, now, why))
    elif copies and not _in_place(execution, kafka):
        why = f"{len(execution.moves)} partitions of KafkaRebalance {who} are going to move"
        down = execution.without - kafka.live
        brokers = tuple(b for b in throttled_brokers(execution.moves) if b not in down)
        topics = {t: s for t, s in throttled_topics(execution.moves).items() if t in kafka.topics}
        rate = max(1, int(execution.throttle))
        return (*plan, Throttle(brokers, rate, topics, Reason("Throttle", why), who))
    elif chosen:
        left = progress_.count(Stage.PENDING)
        why = f"{len(chosen)} of {left} pending partitions of KafkaRebalance {who}: "
        why += chosen[0].why
        moves = {place(m): m.after for m in chosen}
        plan = (*plan, Reassign(moves, Reason("Rebalance", why), who))
    plan = (*plan, *_move_directories(execution, now))
    if plan or now.finished:
        return plan
    return (Wait(Reason("Rebalancing", _pending(who, now)), subject=who),)


def _stop(execution: Execution, now: Standing) -> Plan:
    reason = Reason("Cancelled", f"KafkaRebalance {execution.owner} is cancelled")
    if now.moving:
        return (CancelMoves(tuple(now.moving), reason, execution.owner),)
    if Stage.MOVING in now.directories.values():
        # A copy ends when its replica is asked to be where it is.
        stay: dict[int, dict[TopicPartition, str]] = {}
        for change in execution.directory_moves:
            partition = TopicPartition(change.topic, change.partition)
            if now.directories[change.broker, partition] is Stage.MOVING:
                stay.setdefault(change.broker, {})[partition] = change.before
        return (MoveDirectories(stay, reason, execution.owner),)
    if now.mixed:  # Kafka keeps old and new replicas in one list, so the order may have changed
        return (Reassign(now.mixed, reason, execution.owner),)
    if any(now.throttle_left):
        return (_unthrottle(execution, now, reason.message),)
    if now.unseen:
        return (Wait(Reason("Rebalancing", _pending(execution.owner, now)), now.unseen,
                     subject=execution.owner),)  # fmt: skip
    return ()


def _unthrottle(execution: Execution, now: Standing, why: str) -> Unthrottle:
    return Unthrottle(*now.throttle_left, Reason("Unthrottle", why), execution.owner)


def _in_place(execution: Execution, kafka: ObservedKafka) -> bool:
    """Whether every live broker and topic has the throttle of this proposal."""
    rate = str(max(1, int(execution.throttle)))
    brokers = [b for b in throttled_brokers(execution.moves) if b in kafka.live]
    topics = throttled_topics(execution.moves)
    return all(_rates(kafka, b) == dict.fromkeys(RATES, rate) for b in brokers) and all(
        _replicas(kafka, t) == wanted for t, wanted in topics.items() if t in kafka.topics
    )


def _move_directories(execution: Execution, now: Standing) -> Plan:
    """A few replicas of a broker at a time: a disk has one arm, or one queue."""
    if now.progress.hold:
        return ()
    busy: dict[int, int] = {}
    for (broker, _), stage in now.directories.items():
        busy[broker] = busy.get(broker, 0) + (stage is Stage.MOVING)
    moves: dict[int, dict[TopicPartition, str]] = {}
    for change in execution.directory_moves:
        partition = TopicPartition(change.topic, change.partition)
        pending = now.directories[change.broker, partition] is Stage.PENDING
        known = execution.sizes is not None and change.broker in execution.sizes.brokers
        if pending and known and busy[change.broker] < DIRECTORIES_MAX:
            busy[change.broker] += 1
            moves.setdefault(change.broker, {})[partition] = change.after
    if not moves:
        return ()
    why = f"KafkaRebalance {execution.owner}: {execution.directory_moves[0].why}"
    return (MoveDirectories(moves, Reason("MoveDirectories", why), execution.owner),)


def _pending(owner: str, now: Standing) -> str:
    p = now.progress
    directories = sum(s in (Stage.PENDING, Stage.MOVING) for s in now.directories.values())
    parts = [f"{p.count(s)} {s.value}" for s in Stage if p.count(s)]
    text = f"KafkaRebalance {owner}: {', '.join(parts) or 'no partition moves'}"
    if directories:
        text += f"; {directories} replicas change their directory"
    if p.bytes_left:
        text += f"; {p.bytes_left} bytes left, about {p.seconds_left:.0f} s at the throttle"
    if p.finished and now.unseen:
        text += f"; the throttle of {listed(now.unseen, 'broker')} cannot be removed yet"
    return f"{text}; no new moves: {p.hold}" if p.hold else text
