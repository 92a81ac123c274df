"""Moving replicas: draining brokers that leave, repairing rack placement, filling new brokers.

All of them are `Reassign` actions of limited size: MOVES_MAX partitions move at a time, the next
ones when these are done. So a change of the spec can stop a drain, and a small cluster is not
overloaded with replication traffic.
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
from odradek_operator.kafka.observed import (
    Observed,
    ObservedKafka,
    Partition,
    Phase,
)
from odradek_operator.kafka.replicas import Load, choose_replicas, shares_rack
from odradek_protocol.ids import TopicPartition

MOVES_MAX = 100  # partitions that move at the same time
PAIR = 2  # of two brokers one is a voter, and our controller does not add another
EVEN_ENOUGH = 0.1  # brokers within 10 % of the average are balanced


def drain(
    desired: DesiredCluster,
    observed: Observed,
    kafka: ObservedKafka,
    emptied_by: str = "",
    *,
    restarting: bool = False,
) -> Plan:
    """The next step for leaving brokers: move replicas, leave the quorum, stop, remove.

    While other brokers restart, replicas may move, but no voter leaves the quorum. `emptied_by`: a
    KafkaRebalance that moves the replicas.
    """
    leaving = desired.leaving.keys() & observed.brokers.keys()
    if not leaving:
        return ()
    away = desired.brokers.keys() - kafka.live
    if away:
        why = f"{listed(sorted(leaving), 'broker')} cannot be removed while "
        why += f"{listed(sorted(away), 'broker')} cannot take over"
        return (Wait(Reason("BrokersMissing", why), tuple(sorted(away))),)
    holding = [p for p in kafka.partitions if leaving & {*p.replicas}]
    busy = {r for p in holding for r in p.replicas}
    plan = _move_off(desired, kafka, leaving, holding)
    if emptied_by and plan:
        why = f"KafkaRebalance {emptied_by} moves {len(holding)} partitions off "
        why += f"{listed(sorted(leaving), 'broker')}; see its status"
        plan = (Wait(Reason("Draining", why), tuple(sorted(leaving)), holding[0].id),)
    ready = {b for b, found in observed.brokers.items() if found.phase is Phase.READY}
    # The highest id first, but a removal that has started is finished before the next one.
    empty = sorted(leaving - busy, key=lambda broker: (broker not in ready, broker))
    steady = desired.brokers.keys() <= ready
    if empty and steady and not restarting:
        plan = (*plan, _take_away(desired, observed, kafka, empty))
    return plan


def _move_off(
    desired: DesiredCluster, kafka: ObservedKafka, leaving: Iterable[int], holding: list[Partition]
) -> Plan:
    staying = {b: broker.rack for b, broker in desired.brokers.items()}
    load = Load(kafka.partitions)
    going = set(leaving)
    moves: dict[TopicPartition, tuple[int, ...]] = {}
    refused: list[Partition] = []
    room = MOVES_MAX - sum(p.moving for p in kafka.partitions)
    for partition in holding:
        if not going & set(partition.target):
            continue  # it is being moved
        target = choose_replicas(partition.target, len(partition.target), staying, load)
        if target is None:
            refused.append(partition)
        elif len(moves) < room and not partition.moving:
            moves[partition.id] = target
    names = listed(sorted(going), "broker")
    if refused:  # all or nothing: other moves would be useless if the broker cannot be removed
        why = (
            f"{names} cannot be drained: {refused[0].id} has {len(refused[0].target)} replicas and "
            f"only {len(staying)} brokers would remain"
        )
        return (Refuse(Reason("CannotDrain", why)),)
    if moves:
        why = f"{len(moves)} of {len(holding)} partitions move off {names}"
        return (Reassign(moves, Reason("Drain", why)),)
    if holding:
        why = f"{len(holding)} partitions are still moving off {names}"
        return (Wait(Reason("Draining", why), tuple(sorted(going)), holding[0].id),)
    return ()


def _take_away(
    desired: DesiredCluster, observed: Observed, kafka: ObservedKafka, empty: list[int]
) -> AddVoter | RemoveVoter | StopBroker | UnregisterBroker | RemoveBroker | Wait:
    """The next step of removing the last of the empty brokers."""
    broker = empty[-1]
    reason = Reason("ScaleDown", f"broker {broker} holds no replica and is no longer wanted")
    if step := _leave_quorum(desired, observed, kafka, empty, reason):
        return step
    if observed.brokers[broker].phase is not Phase.STOPPED:
        return StopBroker(broker, reason)
    if broker in kafka.registered:
        return UnregisterBroker(broker, reason)
    if broker in kafka.voters:
        why = f"another broker has to replace broker {broker} in the metadata quorum"
        return Wait(Reason("QuorumNotFull", why), (broker,))
    return RemoveBroker(broker, desired.spec.storage.deletion_policy == "Delete", reason)


def _leave_quorum(
    desired: DesiredCluster,
    observed: Observed,
    kafka: ObservedKafka,
    empty: list[int],
    reason: Reason,
) -> AddVoter | RemoveVoter | Wait | None:
    """The step before a voter may stop. None: it may stop, or it is not a voter.

    If there are three voters, our controller replaces an unregistered one by a staying broker, so
    their number never drops. If there are fewer and none of them stays, a staying broker becomes a
    voter first. Otherwise, and always with Apache Kafka, voters are removed from the quorum before
    they stop, all of them: with two left, a majority would need both.
    """
    voters = [b for b in empty if b in kafka.voters]
    if not voters:
        return None
    down = {b for b, found in observed.brokers.items() if found.phase is not Phase.READY}
    behind = (kafka.lagging_voters | (kafka.voters & down)) - {voters[-1]}
    if lagging := behind - (kafka.voters - kafka.registered.keys()):
        why = f"voters of the metadata quorum are lagging: {listed(sorted(lagging))}"
        return Wait(Reason("QuorumNotHealthy", why), tuple(sorted(lagging)))
    successors = desired.brokers.keys() - kafka.voters
    ours = desired.spec.engine == "embedded" and bool(successors)
    if ours and len(kafka.voters) < VOTERS_MAX and not kafka.voters & desired.brokers.keys():
        if len(kafka.registered) > PAIR:
            why = f"no voter of the metadata quorum stays; {reason}"
            return AddVoter(min(successors), Reason("ScaleDown", why))
    elif ours and len(kafka.voters) >= VOTERS_MAX:
        gone = kafka.voters - kafka.registered.keys() - {empty[-1]}
        if empty[-1] not in kafka.voters or not gone:
            return None
        why = f"broker {empty[-1]} is a voter; it stops after {listed(sorted(gone), 'broker')} "
        return Wait(Reason("QuorumNotFull", f"{why}is replaced in the quorum"), (empty[-1],))
    if kafka.voters == {voters[-1]}:
        why = (
            f"broker {voters[-1]} cannot be removed: it is the only voter of the metadata quorum; "
        )
        why += "set spec.brokers: 3 first, which adds voters"
        return Wait(Reason("OnlyVoter", why), (voters[-1],))
    return RemoveVoter(voters[-1], reason)


def repair_racks(desired: DesiredCluster, kafka: ObservedKafka) -> Plan:
    """Moves replicas that share a rack although there are enough racks."""
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
    why = f"{len(shared)} partitions have replicas that share a rack: {listed(moves)}"
    return (Reassign(moves, Reason("RackRepair", why)),)


def level(desired: DesiredCluster, kafka: ObservedKafka) -> Plan:
    """Moves replicas from brokers with the most to brokers with the fewest, such as new ones."""
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
    why = f"{len(moved)} partitions move to brokers with fewer replicas"
    return (Reassign(moved, Reason("Rebalance", why)),)


def _one_move(
    racks: Mapping[int, str],
    load: Load,
    at: Mapping[TopicPartition, tuple[int, ...]],
    held: Mapping[int, Mapping[TopicPartition, None]],
    tolerance: float,
) -> tuple[TopicPartition, tuple[int, ...]] | None:
    """The first move from a fuller to an emptier broker that keeps replicas in different racks.

    Each move reduces the difference of the two by two, so the search terminates.
    """
    order = sorted(racks, key=lambda b: (load.replicas[b], b))
    for within in (True, False):  # first within a rack, where any replica may move
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
