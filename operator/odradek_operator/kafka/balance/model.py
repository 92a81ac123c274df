"""The cluster as arrays: brokers, partitions, where the replicas are, and what each one costs.

    cluster = build(
        [BrokerModel(0, "a", disk_bytes_max=1e12), BrokerModel(1, "b"), BrokerModel(2, "c")],
        [LoadedPartition(TopicPartition("orders", 0), (0, 1), size_bytes=5e9, bytes_in=2e6)],
    )

Brokers are numbered 0 … B-1 inside of the package; `cluster.broker_ids` has their ids. The first
replica of a partition is its preferred leader, and loads are counted as if it led: moving
replicas is followed by an election of preferred leaders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from odradek_protocol.ids import TopicPartition

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.intp]  # of some of the brokers, ascending

NO_BROKER = -1  # fills the rows of partitions with fewer replicas than others
UNLIMITED = float("inf")


@dataclass(frozen=True, slots=True)
class BrokerModel:
    id: int
    rack: str = ""
    live: bool = True  # a broker that is down receives nothing, and its replicas stay
    receives: bool = True  # False: excluded; replicas and leaders may leave, none may come
    disk_bytes_max: float = UNLIMITED  # what its replicas may use
    replicas_max: float = UNLIMITED


@dataclass(frozen=True, slots=True)
class LoadedPartition:
    id: TopicPartition
    replicas: tuple[int, ...]  # the preferred leader first
    size_bytes: float = 0.0  # of each replica
    bytes_in: float = 0.0  # per second, from producers
    bytes_out: float = 0.0  # per second, to consumers
    isr: frozenset[int] | None = None  # None: all replicas
    min_isr: int = 1
    fixed: bool = False  # moves already, or its topic is excluded


@dataclass(slots=True)
class Cluster:
    """Shapes: B brokers, P partitions, R the most replicas of a partition, T topics."""

    broker_ids: Ints  # B
    racks: Ints  # B: number of the rack; without racks, a rack of its own for each broker
    live: Bools  # B
    receives: Bools  # B: live and not excluded
    disk_bytes_max: Floats  # B
    replicas_max: Floats  # B
    topics: tuple[str, ...]  # T
    topic: Ints  # P: number of the topic
    partition: Ints  # P: number within its topic
    replicas: Ints  # P × R: numbers of brokers, the preferred leader first, then NO_BROKER
    size_bytes: Floats  # P
    bytes_in: Floats  # P
    bytes_out: Floats  # P
    fixed: Bools  # P: excluded, or moving already
    below_min_isr: Bools  # P
    lagging: Bools  # P × R: replicas that are not in sync, which cannot lead now
    factor: Ints = field(init=False)  # P: replicas

    def __post_init__(self) -> None:
        self.factor = (self.replicas != NO_BROKER).sum(axis=1).astype(np.int32)

    @property
    def brokers(self) -> int:
        return len(self.broker_ids)

    @property
    def partitions(self) -> int:
        return len(self.replicas)

    def name(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topics[self.topic[partition]], int(self.partition[partition]))

    def ids(self, brokers: Iterable[int]) -> tuple[int, ...]:
        """The ids of brokers by their numbers, without NO_BROKER."""
        return tuple(int(self.broker_ids[b]) for b in brokers if b != NO_BROKER)

    def numbers(self, ids: Iterable[int]) -> list[int]:
        """The reverse. Raises ValueError for an id that the cluster does not have."""
        known = {int(b): at for at, b in enumerate(self.broker_ids)}
        wanted = list(ids)
        if missing := sorted(set(wanted) - known.keys()):
            raise ValueError(f"the cluster has no broker {missing[0]}; it has {sorted(known)}")
        return [known[b] for b in wanted]

    def moved_to(self, replicas: Ints) -> Cluster:
        """The cluster after a plan was carried out: all replicas in sync."""
        return Cluster(
            self.broker_ids, self.racks, self.live, self.receives, self.disk_bytes_max,
            self.replicas_max, self.topics, self.topic, self.partition, replicas.copy(),
            self.size_bytes, self.bytes_in, self.bytes_out, self.fixed,
            self.below_min_isr, np.where(replicas == self.replicas, self.lagging, False),
        )  # fmt: skip


def build(brokers: Sequence[BrokerModel], partitions: Sequence[LoadedPartition]) -> Cluster:
    """Raises ValueError for a replica on a broker that is not listed; dead ones are listed too."""
    at = {broker.id: number for number, broker in enumerate(brokers)}
    topics: dict[str, int] = {}
    width = max((len(p.replicas) for p in partitions), default=1)
    replicas = np.full((len(partitions), width), NO_BROKER, dtype=np.int32)
    lagging = np.zeros((len(partitions), width), dtype=np.bool_)
    for row, partition in enumerate(partitions):
        topics.setdefault(partition.id.topic, len(topics))
        for position, broker in enumerate(partition.replicas):
            if broker not in at:
                raise ValueError(f"{partition.id} has a replica on unknown broker {broker}")
            replicas[row, position] = at[broker]
            lagging[row, position] = partition.isr is not None and broker not in partition.isr
    live = np.array([b.live for b in brokers], dtype=np.bool_)
    return Cluster(
        broker_ids=np.array([b.id for b in brokers], dtype=np.int32),
        racks=number_racks([b.rack for b in brokers]),
        live=live,
        receives=live & np.array([b.receives for b in brokers], dtype=np.bool_),
        disk_bytes_max=np.array([b.disk_bytes_max for b in brokers], dtype=np.float64),
        replicas_max=np.array([b.replicas_max for b in brokers], dtype=np.float64),
        topics=tuple(topics),
        topic=np.array([topics[p.id.topic] for p in partitions], dtype=np.int32),
        partition=np.array([p.id.partition for p in partitions], dtype=np.int32),
        replicas=replicas,
        size_bytes=np.array([p.size_bytes for p in partitions], dtype=np.float64),
        bytes_in=np.array([p.bytes_in for p in partitions], dtype=np.float64),
        bytes_out=np.array([p.bytes_out for p in partitions], dtype=np.float64),
        fixed=np.array([p.fixed for p in partitions], dtype=np.bool_),
        below_min_isr=np.array(
            [p.isr is not None and len(p.isr) < p.min_isr for p in partitions], dtype=np.bool_
        ),
        lagging=lagging,
    )


def number_racks(racks: Sequence[str]) -> Ints:
    """As in Kafka, racks count only if every broker has one."""
    if not all(racks):
        return np.arange(len(racks), dtype=np.int32)
    names: Mapping[str, int] = {rack: n for n, rack in enumerate(sorted(set(racks)))}
    return np.array([names[rack] for rack in racks], dtype=np.int32)
