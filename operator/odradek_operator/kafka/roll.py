"""The rolling restart, as one pure decision: what is the next step, or what is awaited?

    decide_roll(view) -> Restart | Elect | Wait | Done

Called in every pass with fresh observations; it keeps nothing between passes, so that an operator
that died in the middle goes on where the cluster is. It never gives up and never forces.

A step is taken only from a settled cluster: every broker ready, every partition's ISR whole, and
the leaders back on their preferred replicas. Then the brokers of one rack may go together, up to
`max_unavailable`, if no two of them hold the same partition and if every partition keeps

    required = min(min.insync.replicas, replicas - 1)

live in-sync replicas. With 3 replicas and min ISR 2 that is 2; with one replica 0: such a
partition does not stop the roll, it is named as unavailable during it. The active controller goes
last, alone among the pending, so that it moves once.

Controllers that are apart are rolled by the same rules: they hold no partition, and the quorum has
to keep its majority.

A broker that crashes anyway and has an old configuration is restarted at once: it serves nobody,
and the new configuration may be its cure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from odradek_operator.kafka.actions import Elect, Reason, Restart, Wait, listed, named
from odradek_operator.kafka.observed import NO_LEADER, Partition, Phase, TopicPartition

ELECT_MAX = 1000  # partitions in one election request


@dataclass(frozen=True, slots=True)
class RollBroker:
    id: int
    rack: str
    phase: Phase
    pending: Reason | None = None  # why it has to be restarted
    since: float = 0.0  # when it came into its phase, unix seconds


@dataclass(frozen=True, slots=True)
class RollView:
    now: float
    brokers: Mapping[int, RollBroker]
    partitions: tuple[Partition, ...] = ()
    controller: int = -1
    voters: frozenset[int] = frozenset()
    lagging_voters: frozenset[int] = frozenset()
    max_unavailable: int = 1
    min_ready_seconds: int = 0
    preferred_leaders: bool = True
    apart: bool = False  # the controllers are others; they have a view of their own
    # By broker, computed once: which partitions it holds a settled replica of.
    held: Mapping[int, frozenset[int]] = field(init=False)

    def __post_init__(self) -> None:
        held: dict[int, set[int]] = defaultdict(set)
        for index, partition in enumerate(self.partitions):
            for replica in partition.replicas:
                held[replica].add(index)
        frozen = {broker: frozenset(indexes) for broker, indexes in held.items()}
        object.__setattr__(self, "held", frozen)

    @property
    def pending(self) -> list[int]:
        return sorted(b.id for b in self.brokers.values() if b.pending)

    @property
    def ready(self) -> frozenset[int]:
        return frozenset(b.id for b in self.brokers.values() if b.phase is Phase.READY)


@dataclass(frozen=True, slots=True)
class Done:
    pass


Decision: TypeAlias = Restart | Elect | Wait | Done
CRASHED = "RestartCrashed"


def decide_roll(view: RollView) -> Decision:
    return (
        _restart_crashed(view)
        or _wait_for_brokers(view)
        or _wait_for_replicas(view)
        or _elect(view)
        or _restart(view)
    )


def required(partition: Partition) -> int:
    """How many live in-sync replicas a restart has to leave."""
    return max(0, min(partition.min_isr, len(partition.settled) - 1))


# -- the steps -------------------------------------------------------------------------------------


def _restart_crashed(view: RollView) -> Restart | None:
    crashed = [b for b in view.pending if view.brokers[b].phase is Phase.CRASHED]
    if not crashed:
        return None
    why = f"{named(crashed)} cannot run as configured before; {_why(view, crashed)}"
    return Restart(tuple(crashed), Reason(CRASHED, why))


def _wait_for_brokers(view: RollView) -> Wait | None:
    away = [b for b in view.brokers.values() if b.phase is not Phase.READY]
    if away:
        same = [b for b in away if b.phase is away[0].phase]
        ids = tuple(b.id for b in same)
        say = f"{named(ids)} {'are' if len(ids) > 1 else 'is'} {same[0].phase.value}"
        since = min(b.since for b in same)
        return Wait(Reason("BrokerNotReady", say), ids, since=since)
    young = [
        b
        for b in view.brokers.values()
        if view.pending and view.now - b.since < view.min_ready_seconds
    ]
    if young:
        say = f"{named(b.id for b in young)} ready for less than "
        say += f"{view.min_ready_seconds} s"
        return Wait(Reason("MinReadySeconds", say), tuple(b.id for b in young))
    if view.controller not in view.brokers and not (view.apart and view.controller >= 0):
        return Wait(Reason("NoController", "the cluster has no active controller"))
    return None


def _wait_for_replicas(view: RollView) -> Wait | None:
    """Brokers that were restarted have to be in sync again, everywhere, before the next step."""
    for partition in view.partitions:
        for replica in partition.settled:
            broker = view.brokers.get(replica)
            if replica in partition.isr or broker is None or broker.pending:
                continue  # a broker that is no more is nobody's to wait for
            say = (
                f"{partition.id} has {len(partition.isr)} of {len(partition.settled)} replicas "
                f"in sync and waits for broker {replica}"
            )
            return Wait(Reason("ReplicaNotInSync", say), (replica,), partition.id)
    return None


def _elect(view: RollView) -> Elect | None:
    if not view.preferred_leaders:
        return None
    away = not_preferred(view.partitions, view.ready)
    if not away:
        return None
    say = f"{len(away)} partitions are not led by their preferred replica"
    return Elect(tuple(away[:ELECT_MAX]), Reason("PreferredLeaders", say))


def _restart(view: RollView) -> Restart | Wait | Done:
    pending = view.pending
    if not pending:
        return Done()
    others = [b for b in pending if b != view.controller]
    candidates = others or pending  # the active controller goes last
    batches = [_batch(view, group) for group in _by_rack(view, candidates)]
    best = max(batches, key=len)
    if not best:
        return _blocked(view, candidates[0])
    reason = Reason("RollingRestart", _why(view, best))
    return Restart(tuple(best), reason, _unavailable(view, best))


# -- their rules -----------------------------------------------------------------------------------


def not_preferred(partitions: Iterable[Partition], ready: frozenset[int]) -> list[TopicPartition]:
    """Partitions whose preferred replica could lead them, and does not."""
    return [
        p.id
        for p in partitions
        if not p.moving
        and p.leader != p.replicas[0]
        and p.replicas[0] in ready
        and p.replicas[0] in p.isr
    ]


def _by_rack(view: RollView, brokers: list[int]) -> list[list[int]]:
    racks: dict[str, list[int]] = {}
    for broker in brokers:
        racks.setdefault(view.brokers[broker].rack, []).append(broker)
    return list(racks.values())


def _batch(view: RollView, group: list[int]) -> list[int]:
    """Brokers that may go together: no partition in common, quorum and ISRs kept."""
    batch: list[int] = []
    for broker in group:
        if len(batch) == view.max_unavailable:
            break
        shared = any(_held(view, broker) & _held(view, other) for other in batch)
        if not shared and _obstacle(view, broker) is None and _quorum_keeps(view, [*batch, broker]):
            batch.append(broker)
    return batch


def _held(view: RollView, broker: int) -> frozenset[int]:
    return view.held.get(broker, frozenset())


def _obstacle(view: RollView, broker: int) -> Partition | None:
    """A partition that could not do without this broker now."""
    for index in sorted(_held(view, broker)):
        partition = view.partitions[index]
        left = (partition.isr & view.ready) - {broker}
        if len(left) < required(partition):
            return partition
    return None


def _quorum_keeps(view: RollView, batch: list[int]) -> bool:
    """A majority of voters that are up to date stays; of two or one, all but the one that goes."""
    voters = view.voters & view.brokers.keys()
    if not voters & set(batch):
        return True
    left = (voters & view.ready) - view.lagging_voters - set(batch)
    return len(left) >= min(len(view.voters) // 2 + 1, len(view.voters) - 1)


def _blocked(view: RollView, broker: int) -> Wait:
    partition = _obstacle(view, broker)
    if partition is None:
        say = f"{named([broker])} has to wait: the other voters of the metadata quorum are not "
        say += "up to date"
        return Wait(Reason("QuorumNotHealthy", say), (broker,))
    in_sync = sorted(partition.isr & view.ready)
    say = (
        f"broker {broker} has to wait: {partition.id} has in-sync replicas "
        f"{listed(in_sync) or 'nowhere'} and needs {required(partition)} without broker {broker}"
    )
    return Wait(Reason("WouldFallBelowMinIsr", say), (broker,), partition.id)


def _unavailable(view: RollView, batch: list[int]) -> tuple[TopicPartition, ...]:
    going = set(batch)
    return tuple(
        p.id
        for p in view.partitions
        if p.leader != NO_LEADER
        and p.isr & going
        and len((p.isr & view.ready) - going) < max(1, p.min_isr)
    )


def _why(view: RollView, brokers: Iterable[int]) -> str:
    """ "brokers 0 and 3: log.cleaner.threads changed"; one sentence per reason."""
    by_reason: dict[str, list[int]] = {}
    for broker in brokers:
        pending = view.brokers[broker].pending
        if pending is not None:
            by_reason.setdefault(pending.message, []).append(broker)
    return "; ".join(f"{named(ids)}: {why}" for why, ids in by_reason.items())
