"""The answers of Metadata and FindCoordinator, typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from odradek_protocol.client.errors import BrokerError, error_in
from odradek_protocol.client.settings import Address
from odradek_protocol.messages.struct import Struct

NO_LEADER = -1


class Node(NamedTuple):
    """A broker as clients reach it."""

    broker_id: int
    address: Address
    rack: str | None


class PartitionInfo(NamedTuple):
    partition: int
    leader: int  # NO_LEADER while there is none
    leader_epoch: int
    replicas: tuple[int, ...]  # the first is the preferred leader
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True)
class TopicInfo:
    name: str
    topic_id: UUID | None
    internal: bool
    partitions: dict[int, PartitionInfo]  # in the order of their numbers
    error: BrokerError | None = None  # then there are no partitions


@dataclass(frozen=True)
class Metadata:
    cluster_id: str
    controller_id: int
    brokers: dict[int, Node]  # live ones only: fenced brokers are in DescribeCluster
    topics: dict[str, TopicInfo]

    @classmethod
    def of(cls, answer: Struct) -> Metadata:
        brokers = {
            b.node_id: Node(b.node_id, Address(b.host, b.port), b.rack) for b in answer.brokers
        }
        topics = {t.name: _topic(t) for t in answer.topics}
        return cls(answer.cluster_id or "", answer.controller_id, brokers, topics)


def _topic(found: Struct) -> TopicInfo:
    partitions = {
        p.partition_index: PartitionInfo(
            p.partition_index,
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
        )
        for p in sorted(found.partitions, key=lambda p: p.partition_index)
    }
    return TopicInfo(found.name, found.topic_id, found.is_internal, partitions, error_in(found))
