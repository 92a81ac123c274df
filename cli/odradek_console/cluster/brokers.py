"""Brokers with what is on them: leaders, replicas, those behind, log directories."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from odradek_console.cluster.view import ClusterView
from odradek_protocol.client.admin.brokers import RegisteredBroker
from odradek_protocol.client.admin.log_dirs import LogDirInfo
from odradek_protocol.client.errors import ClientError
from odradek_protocol.ids import TopicPartition


@dataclass
class BrokerRow:
    broker: RegisteredBroker
    is_controller: bool
    leaders: int
    replicas: int
    behind: int  # replicas that are not in sync
    directories: list[LogDirInfo]
    problem: str  # why the directories are not known

    @property
    def bytes_used(self) -> int:
        return sum(sum(one.replica_bytes.values()) for one in self.directories)


def collect(view: ClusterView) -> tuple[list[BrokerRow], list[TopicPartition]]:
    """And the partitions whose leader is not the preferred one."""
    metadata, described = view.metadata(), view.description()
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    not_preferred = []
    for topic in metadata.topics.values():
        for number, one in topic.partitions.items():
            leaders[one.leader] += 1
            replicas.update(one.replicas)
            behind.update(set(one.replicas) - set(one.isr))
            if one.replicas and one.leader != one.replicas[0]:
                not_preferred.append(TopicPartition(topic.name, number))
    controller = metadata.controller_id
    try:
        log_dirs = view.log_dirs()
        refused = ""
    except ClientError as error:
        log_dirs, refused = {}, str(error)
    rows = []
    for broker_id, broker in described.brokers.items():
        found = log_dirs.get(broker_id, [])
        directories, problem = (
            ([], str(found)) if isinstance(found, ClientError) else (found, refused)
        )
        rows.append(
            BrokerRow(
                broker,
                broker_id == controller,
                leaders[broker_id],
                replicas[broker_id],
                behind[broker_id],
                directories,
                problem,
            )
        )
    return rows, not_preferred
