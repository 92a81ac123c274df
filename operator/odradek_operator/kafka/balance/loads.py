"""The input of the optimizer: sizes, bytes per second, racks and room.

Sizes are those of the leaders. Bytes per second are what the brokers measured over a window. Of
brokers that did not answer they are the growth of the leaders' logs between two observations of
all log directories: deletions by retention hide some of it, and what consumers read is not known
then, so each record is assumed to be read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek_operator.kafka.balance.directories import Directory, Placed
from odradek_operator.kafka.balance.model import UNLIMITED, BrokerModel, LoadedPartition
from odradek_operator.kafka.observed import NO_LEADER, Loads, LogSizes, Partition, SizedDir
from odradek_protocol.ids import TopicPartition

DISK_USE_MAX = 0.8  # of the room that a broker's replicas have: the rest is for growth


@dataclass(frozen=True)
class Restrictions:
    topics: frozenset[str] = frozenset()  # that stay
    brokers: frozenset[int] = frozenset()  # that receive nothing
    replicas_max: float = UNLIMITED  # of each broker


@dataclass(frozen=True)
class Seen:
    brokers: list[BrokerModel]
    partitions: list[LoadedPartition]
    directories: list[Directory]
    placed: list[Placed]


def see(
    partitions: Iterable[Partition],
    racks: Mapping[int, str],
    live: frozenset[int],
    sizes: tuple[LogSizes, LogSizes],
    restrictions: Restrictions,
    loads: Loads | None = None,
) -> Seen:
    """`racks`: of all registered brokers; `sizes`: the earlier and the later observation."""
    first, now = sizes
    passed = now.at - first.at
    held, earlier = _by_replica(now), _by_replica(first)
    loads = loads or Loads()
    everyone = list(partitions)
    # The preferred leader leads after a rebalance; until then its size is that of the leader.
    size_of = {p.id: held.get((p.leader, p.id), 0) for p in everyone}
    grown = {
        p.id: max(0, size_of[p.id] - earlier.get((p.leader, p.id), size_of[p.id])) for p in everyone
    }
    of_topics = _divided(everyone, loads, grown, size_of)
    loaded = []
    for p in everyone:
        if p.id in of_topics:
            bytes_in, bytes_out = of_topics[p.id]
        elif p.leader in loads.seconds:
            bytes_in, bytes_out = loads.bytes_in.get(p.id, 0.0), loads.bytes_out.get(p.id, 0.0)
        else:
            bytes_in = bytes_out = grown[p.id] / passed if passed > 0 else 0.0
        # Without a leader there is no replica to copy from: a move would never end.
        fixed = p.moving or p.id.topic in restrictions.topics or p.leader == NO_LEADER
        loaded.append(
            LoadedPartition(
                p.id, p.replicas, size_of[p.id], bytes_in, bytes_out, p.isr, p.min_isr, fixed
            )
        )
    directories = [
        Directory(broker, d.path, float(_room(d)))
        for broker, its in now.brokers.items()
        for d in its
        if not d.offline
    ]
    placed = [
        Placed(partition, broker, d.path, float(size))
        for broker, its in now.brokers.items()
        for d in its
        for partition, size in d.replica_bytes.items()
        if partition.topic not in restrictions.topics
    ]
    return Seen(_brokers(racks, live, loaded, now, restrictions), loaded, directories, placed)


def _divided(
    partitions: Sequence[Partition],
    loads: Loads,
    grown: Mapping[TopicPartition, int],
    sizes: Mapping[TopicPartition, int],
) -> dict[TopicPartition, tuple[float, float]]:
    """The load of a topic on a broker, divided among the partitions that the broker leads.

    In proportion to what their logs grew by; if they did not grow meanwhile, to their sizes.
    """
    led: dict[tuple[int, str], list[TopicPartition]] = {}
    for p in partitions:
        if (p.leader, p.id.topic) in loads.topics:
            led.setdefault((p.leader, p.id.topic), []).append(p.id)
    found = {}
    for key, ids in led.items():
        weights = [float(grown[p]) for p in ids]
        if not any(weights):
            weights = [float(sizes[p]) for p in ids]
        if not any(weights):
            weights = [1.0] * len(ids)
        total, (bytes_in, bytes_out) = sum(weights), loads.topics[key]
        for place, weight in zip(ids, weights, strict=True):
            found[place] = bytes_in * weight / total, bytes_out * weight / total
    return found


def _brokers(
    racks: Mapping[int, str],
    live: frozenset[int],
    loaded: Iterable[LoadedPartition],
    sizes: LogSizes,
    restrictions: Restrictions,
) -> list[BrokerModel]:
    """Also brokers that are gone for good and still in the list of a partition."""
    gone = {r for p in loaded for r in p.replicas} - racks.keys()
    room = {
        broker: DISK_USE_MAX * sum(_room(d) for d in its if not d.offline)
        for broker, its in sizes.brokers.items()
        if all(d.usable_bytes >= 0 for d in its)
    }
    return [
        BrokerModel(
            broker,
            rack,
            live=broker in live,
            receives=broker not in restrictions.brokers,
            disk_bytes_max=room.get(broker, UNLIMITED),
            replicas_max=restrictions.replicas_max,
        )
        for broker, rack in racks.items()
    ] + [BrokerModel(b, "", live=False) for b in sorted(gone)]


def _room(directory: SizedDir) -> int:
    return sum(directory.replica_bytes.values()) + max(0, directory.usable_bytes)


def _by_replica(sizes: LogSizes) -> dict[tuple[int, TopicPartition], int]:
    return {
        (broker, partition): size
        for broker, its in sizes.brokers.items()
        for d in its
        for partition, size in d.replica_bytes.items()
    }
