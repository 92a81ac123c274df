"""Replicas on the move: draining brokers that leave, mending racks, filling new brokers.

All of them become `Reassign` actions of a limited size: MOVES_MAX partitions move at a time, the
next ones when these have arrived. So a drain can be stopped by a change of the spec, and a small
cluster is not flooded with copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_operator.kafka.actions import (
    AddVoter,
    Plan,
    Reason,
    Reassign,
    Refuse,
    RemoveBroker,
    RemoveVoter,
    StopBroker,
    UnregisterBroker,
    Wait,
    listed,
)
from odradek_operator.kafka.desired import VOTERS_MAX, DesiredCluster
from odradek_operator.kafka.observed import Kafka, Observed, Partition, Phase, TopicPartition
from odradek_operator.kafka.replicas import Load, choose_replicas, shares_rack

MOVES_MAX = 100  # partitions that move at the same time
PAIR = 2  # of so many brokers one votes, and the controller insists on it
EVEN_ENOUGH = 0.1  # brokers within 10 % of each other are not levelled


def drain(
    desired: DesiredCluster, observed: Observed, kafka: Kafka, *, restarting: bool = False
) -> Plan:
    """The next step for the brokers that should go: move, leave the quorum, stop, forget.

    While others restart, replicas may move, but nobody leaves the quorum.
    """
    leaving = desired.leaving.keys() & observed.brokers.keys()
    if not leaving:
        return ()
    away = desired.brokers.keys() - kafka.live
    if away:
        say = f"{listed(sorted(leaving), 'broker')} cannot go before {listed(sorted(away))} can "
        return (Wait(Reason("BrokersMissing", say + "take over"), tuple(sorted(away))),)
    holding = [p for p in kafka.partitions if leaving & {*p.replicas}]
    busy = {r for p in holding for r in p.replicas}
    plan = _move_off(desired, kafka, leaving, holding)
    ready = {b for b, found in observed.brokers.items() if found.phase is Phase.READY}
    # The last goes first. One whose end has begun is brought to it before the next one stops.
    empty = sorted(leaving - busy, key=lambda broker: (broker not in ready, broker))
    steady = desired.brokers.keys() <= ready
    if empty and steady and not restarting:
        plan = (*plan, _take_away(desired, observed, kafka, empty))
    return plan


def _move_off(
    desired: DesiredCluster, kafka: Kafka, leaving: Iterable[int], holding: list[Partition]
) -> Plan:
    staying = {b: broker.rack for b, broker in desired.brokers.items()}
    load = Load(kafka.partitions)
    going = set(leaving)
    moves: dict[TopicPartition, tuple[int, ...]] = {}
    refused: list[Partition] = []
    room = MOVES_MAX - sum(p.moving for p in kafka.partitions)
    for partition in holding:
        if not going & set(partition.target):
            continue  # it is on its way
        target = choose_replicas(partition.target, len(partition.target), staying, load)
        if target is None:
            refused.append(partition)
        elif len(moves) < room and not partition.moving:
            moves[partition.id] = target
    names = listed(sorted(going), "broker")
    if refused:  # all or nothing: what is moved for a broker that cannot go is moved in vain
        say = (
            f"{names} cannot be drained: {refused[0].id} has {len(refused[0].target)} replicas and "
            f"only {len(staying)} brokers would remain"
        )
        return (Refuse(Reason("CannotDrain", say)),)
    if moves:
        say = f"{len(moves)} of {len(holding)} partitions leave {names}"
        return (Reassign(moves, Reason("Drain", say)),)
    if holding:
        say = f"{len(holding)} partitions are on their way off {names}"
        return (Wait(Reason("Draining", say), tuple(sorted(going)), holding[0].id),)
    return ()


def _take_away(
    desired: DesiredCluster, observed: Observed, kafka: Kafka, empty: list[int]
) -> AddVoter | RemoveVoter | StopBroker | UnregisterBroker | RemoveBroker | Wait:
    """The last of the brokers without replicas: one step nearer to its end."""
    broker = empty[-1]
    say = f"broker {broker} holds no replica and is not wanted any more"
    reason = Reason("ScaleDown", say)
    if step := _leave_quorum(desired, observed, kafka, empty, reason):
        return step
    if observed.brokers[broker].phase is not Phase.STOPPED:
        return StopBroker(broker, reason)
    if broker in kafka.registered:
        return UnregisterBroker(broker, reason)
    if broker in kafka.voters:
        say = f"another broker takes the place of broker {broker} in the metadata quorum"
        return Wait(Reason("QuorumNotFull", say), (broker,))
    return RemoveBroker(broker, desired.spec.storage.deletion_policy == "Delete", reason)


def _leave_quorum(
    desired: DesiredCluster, observed: Observed, kafka: Kafka, empty: list[int], reason: Reason
) -> AddVoter | RemoveVoter | Wait | None:
    """Before a voter stops. None: it may, or it does not vote.

    Of three voters, our controller replaces one that was unregistered by a broker that stays and
    does not vote yet, so that there are never fewer than before. Of fewer, none of whom stays, one
    that stays becomes a voter first. Elsewhere, and with Apache Kafka, voters are removed before
    they stop, all of them: with two left, each would be half.
    """
    voters = [b for b in empty if b in kafka.voters]
    if not voters:
        return None
    down = {b for b, found in observed.brokers.items() if found.phase is not Phase.READY}
    behind = (kafka.lagging_voters | (kafka.voters & down)) - {voters[-1]}
    if lagging := behind - (kafka.voters - kafka.registered.keys()):
        say = f"voters of the metadata quorum are not up to date: {listed(sorted(lagging))}"
        return Wait(Reason("QuorumNotHealthy", say), tuple(sorted(lagging)))
    successors = desired.brokers.keys() - kafka.voters
    ours = desired.spec.engine == "embedded" and bool(successors)
    if ours and len(kafka.voters) < VOTERS_MAX and not kafka.voters & desired.brokers.keys():
        if len(kafka.registered) > PAIR:
            say = f"nobody who votes about the metadata stays; {reason}"
            return AddVoter(min(successors), Reason("ScaleDown", say))
    elif ours and len(kafka.voters) >= VOTERS_MAX:
        gone = kafka.voters - kafka.registered.keys() - {empty[-1]}
        if empty[-1] not in kafka.voters or not gone:
            return None
        say = f"broker {empty[-1]} votes; it goes when {listed(sorted(gone), 'broker')} is replaced"
        return Wait(Reason("QuorumNotFull", say), (empty[-1],))
    if kafka.voters == {voters[-1]}:
        say = f"broker {voters[-1]} cannot go: it is the only voter of the metadata quorum; with "
        say += "spec.brokers: 3 there are others, and it can go then"
        return Wait(Reason("OnlyVoter", say), (voters[-1],))
    return RemoveVoter(voters[-1], reason)


def repair_racks(desired: DesiredCluster, kafka: Kafka) -> Plan:
    """Partitions with two replicas in one rack, although there are racks for all."""
    racks = {b: broker.rack for b, broker in desired.brokers.items()}
    load = Load(kafka.partitions)
    moves: dict[TopicPartition, tuple[int, ...]] = {}
    shared = [p for p in kafka.partitions if shares_rack(p.target, racks)]
    room = MOVES_MAX - sum(p.moving for p in kafka.partitions)
    for partition in [p for p in shared if not p.moving][: max(0, room)]:
        target = choose_replicas(partition.target, len(partition.target), racks, load)
        if target is not None and target != partition.target:
            moves[partition.id] = target
    if not moves:
        return ()
    say = f"{len(shared)} partitions have replicas that share a rack: {listed(moves)}"
    return (Reassign(moves, Reason("RackRepair", say)),)


def level(desired: DesiredCluster, kafka: Kafka) -> Plan:
    """Some replicas of the fullest brokers to the emptiest, for example to new ones."""
    racks = {b: broker.rack for b, broker in desired.brokers.items()}
    if len(racks) < 2 or any(p.moving for p in kafka.partitions):
        return ()
    load = Load(kafka.partitions)
    at = {p.id: p.target for p in kafka.partitions}
    held: dict[int, dict[TopicPartition, None]] = {b: {} for b in racks}  # in order
    for partition, replicas in at.items():
        for broker in replicas:
            held.setdefault(broker, {})[partition] = None
    moved: dict[TopicPartition, tuple[int, ...]] = {}
    average = sum(load.replicas[b] for b in racks) / len(racks)
    while len(moved) < MOVES_MAX:
        step = _one_move(racks, load, at, held, max(1.0, average * EVEN_ENOUGH))
        if step is None:
            break
        partition, target = step
        load.take(at[partition])
        load.add(target)
        for broker in set(target) - set(at[partition]):
            held[broker][partition] = None
        for broker in set(at[partition]) - set(target):
            held[broker].pop(partition, None)
        at[partition] = moved[partition] = target
    if not moved:
        return ()
    say = f"{len(moved)} partitions move to brokers that have fewer than others"
    return (Reassign(moved, Reason("Rebalance", say)),)


def _one_move(
    racks: Mapping[int, str],
    load: Load,
    at: Mapping[TopicPartition, tuple[int, ...]],
    held: Mapping[int, Mapping[TopicPartition, None]],
    tolerance: float,
) -> tuple[TopicPartition, tuple[int, ...]] | None:
    """The first move from a fuller to an emptier broker that keeps racks apart.

    Each makes the two at least two replicas more alike, so that there is a last one.
    """
    order = sorted(racks, key=lambda b: (load.replicas[b], b))
    for within in (True, False):  # inside a rack any replica may move: nearly always found here
        for empty in order:
            for full in reversed(order):
                if load.replicas[full] - load.replicas[empty] <= tolerance:
                    break
                if (racks[full] == racks[empty]) is not within:
                    continue
                for partition in held[full]:
                    replicas = at[partition]
                    if empty in replicas:
                        continue
                    target = tuple(empty if r == full else r for r in replicas)
                    if within or not shares_rack(target, racks):
                        return partition, target
    return None
