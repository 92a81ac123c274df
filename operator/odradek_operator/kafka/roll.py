"""The rolling restart as one decision: the next step, or what it waits for. Does no I/O.

    decide_roll(view) -> Restart | Elect | Wait | NothingToRestart

It is called in every pass with a new observation and keeps nothing between passes, so an operator
that was restarted continues where the cluster is. It never gives up and never forces a step.

A step is taken only from a settled cluster: every broker ready, every ISR complete, and the leaders
on their preferred replicas. Then brokers of one rack may restart together, up to `max_unavailable`,
if no two of them hold the same partition and if every partition keeps

    required = min(min.insync.replicas, replicas - 1)

live in-sync replicas. With 3 replicas and min ISR 2 that is 2; with one replica it is 0: such a
partition does not block the roll, but is reported as unavailable during it. The active controller
is restarted last and alone, so that the controller moves only once.

Dedicated controllers follow the same rules: they hold no partition, and the quorum has to keep its
majority.

A crashed broker with old settings is restarted at once: it serves no client, and the new settings
may be the fix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from odradek_operator.kafka.actions import Elect, Reason, Restart, Wait, listed, named
from odradek_operator.kafka.observed import NO_LEADER, Partition, Phase
from odradek_protocol.ids import TopicPartition

ELECT_MAX = 1000  # partitions in one election request


@dataclass(frozen=True, slots=True)
class RollBroker:
    id: int
    rack: str
    phase: Phase
    pending: Reason | None = None  # why it has to be restarted
    since: float = 0.0  # start of its phase, unix seconds


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
    dedicated_controllers: bool = False  # they have their own view
    # Broker → indexes of the partitions that it holds a replica of; computed once.
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
class NothingToRestart:
    pass


Decision: TypeAlias = Restart | Elect | Wait | NothingToRestart
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
    """How many live in-sync replicas must remain during a restart."""
    return max(0, min(partition.min_isr, len(partition.settled) - 1))


# -- the steps -------------------------------------------------------------------------------------


def _restart_crashed(view: RollView) -> Restart | None:
    crashed = [b for b in view.pending if view.brokers[b].phase is Phase.CRASHED]
    if not crashed:
        return None
    why = f"{named(crashed)} cannot run with the old settings; {_why(view, crashed)}"
    return Restart(tuple(crashed), Reason(CRASHED, why))


def _wait_for_brokers(view: RollView) -> Wait | None:
    away = [b for b in view.brokers.values() if b.phase is not Phase.READY]
    if away:
        same = [b for b in away if b.phase is away[0].phase]
        ids = tuple(b.id for b in same)
        why = f"{named(ids)} {'are' if len(ids) > 1 else 'is'} {same[0].phase.value}"
        since = min(b.since for b in same)
        return Wait(Reason("BrokerNotReady", why), ids, since=since)
    young = [
        b
        for b in view.brokers.values()
        if view.pending and view.now - b.since < view.min_ready_seconds
    ]
    if young:
        why = f"{named(b.id for b in young)} {'have' if len(young) > 1 else 'has'} been ready for "
        why += f"less than {view.min_ready_seconds} s"
        return Wait(Reason("MinReadySeconds", why), tuple(b.id for b in young))
    if view.controller not in view.brokers and not (
        view.dedicated_controllers and view.controller >= 0
    ):
        return Wait(Reason("NoController", "the cluster has no active controller"))
    return None


def _wait_for_replicas(view: RollView) -> Wait | None:
    """All replicas of restarted brokers have to be in sync before the next step."""
    for partition in view.partitions:
        for replica in partition.settled:
            broker = view.brokers.get(replica)
            if replica in partition.isr or broker is None or broker.pending:
                continue  # do not wait for a broker that was removed or is restarted anyway
            why = (
                f"{partition.id} has {len(partition.isr)} of {len(partition.settled)} replicas "
                f"in sync; waiting for broker {replica}"
            )
            return Wait(Reason("ReplicaNotInSync", why), (replica,), partition.id)
    return None


def _elect(view: RollView) -> Elect | None:
    if not view.preferred_leaders:
        return None
    away = not_preferred(view.partitions, view.ready)
    if not away:
        return None
    why = f"{len(away)} partitions are not led by their preferred replica"
    return Elect(tuple(away[:ELECT_MAX]), Reason("PreferredLeaders", why))


def _restart(view: RollView) -> Restart | Wait | NothingToRestart:
    pending = view.pending
    if not pending:
        return NothingToRestart()
    others = [b for b in pending if b != view.controller]
    candidates = others or pending  # the active controller is last
    batches = [_batch(view, group) for group in _by_rack(view, candidates)]
    best = max(batches, key=len)
    if not best:
        return _blocked(view, candidates[0])
    reason = Reason("RollingRestart", _why(view, best))
    return Restart(tuple(best), reason, _unavailable(view, best))


# -- their rules -----------------------------------------------------------------------------------


def not_preferred(partitions: Iterable[Partition], ready: frozenset[int]) -> list[TopicPartition]:
    """Partitions whose preferred replica could lead but does not."""
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
    """Brokers that may restart together: no partition in common, quorum and ISRs kept."""
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
    """A partition that would fall below its required in-sync replicas without this broker."""
    for index in sorted(_held(view, broker)):
        partition = view.partitions[index]
        left = (partition.isr & view.ready) - {broker}
        if len(left) < required(partition):
            return partition
    return None


def _quorum_keeps(view: RollView, batch: list[int]) -> bool:
    """Whether a majority of current voters stays; of two or one, all but the restarted one."""
    voters = view.voters & view.brokers.keys()
    if not voters & set(batch):
        return True
    left = (voters & view.ready) - view.lagging_voters - set(batch)
    return len(left) >= min(len(view.voters) // 2 + 1, len(view.voters) - 1)


def _blocked(view: RollView, broker: int) -> Wait:
    partition = _obstacle(view, broker)
    if partition is None:
        why = (
            f"{named([broker])} cannot restart yet: other voters of the metadata quorum are lagging"
        )
        return Wait(Reason("QuorumNotHealthy", why), (broker,))
    in_sync = sorted(partition.isr & view.ready)
    on = f"on {listed(in_sync)}" if in_sync else "on no broker"
    why = f"broker {broker} cannot restart yet: {partition.id} has in-sync replicas {on} and needs "
    why += f"{required(partition)} without broker {broker}"
    return Wait(Reason("WouldFallBelowMinIsr", why), (broker,), partition.id)


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
