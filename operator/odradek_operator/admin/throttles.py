"""Replication throttles of moves, and the sizes of replicas, through the admin protocol."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from odradek_operator.kafka.balance.execution import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from odradek_operator.kafka.observed import LogSizes, SizedDir
from odradek_protocol.client import ClientError, KafkaClient
from odradek_protocol.client.admin import configs, log_dirs
from odradek_protocol.client.admin.configs import ConfigChange, ConfigOperation, ResourceType
from odradek_protocol.client.routes import Broker
from odradek_protocol.ids import TopicPartition

CHUNK = 500  # resources in one request
RATES = (LEADER_RATE, FOLLOWER_RATE)
REPLICAS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

Changes = Mapping[str, Mapping[str, str | None]]


def set_throttle(
    client: KafkaClient, brokers: Iterable[int], rate: float, topics: Changes
) -> dict[str, str]:
    """Returns what was refused, by broker or topic."""
    value = str(max(1, int(rate)))
    at = {str(b): dict[str, str | None](dict.fromkeys(RATES, value)) for b in brokers}
    return _alter(client, ResourceType.BROKER, at) | _alter(client, ResourceType.TOPIC, topics)


def remove_throttle(
    client: KafkaClient, brokers: Iterable[int], topics: Iterable[str]
) -> dict[str, str]:
    """Of topics that still exist; whether the settings are there or not."""
    rates: Changes = {str(b): dict.fromkeys(RATES) for b in brokers}
    there = client.metadata().topics.keys() & set(topics)
    replicas: Changes = {topic: dict.fromkeys(REPLICAS) for topic in sorted(there)}
    return _alter(client, ResourceType.BROKER, rates) | _alter(client, ResourceType.TOPIC, replicas)


def _alter(client: KafkaClient, kind: ResourceType, changes: Changes) -> dict[str, str]:
    """Of a broker at that broker: Apache Kafka's brokers refuse changes of others."""
    size = 1 if kind is ResourceType.BROKER else CHUNK
    names, refused = list(changes), {}
    for at in range(0, len(names), size):
        part = names[at : at + size]
        asked = {name: _operations(changes[name]) for name in part}
        route = Broker(int(part[0])) if kind is ResourceType.BROKER else None
        for name, error in configs.alter_configs(client, kind, asked, route).items():
            refused[f"{kind.name.lower()} {name}"] = error.detail
    return refused


def _operations(settings: Mapping[str, str | None]) -> list[ConfigChange]:
    return [
        ConfigChange(name, ConfigOperation.DELETE)
        if value is None
        else ConfigChange(name, ConfigOperation.SET, value)
        for name, value in settings.items()
    ]


def log_sizes(client: KafkaClient) -> LogSizes:
    """Of all brokers that answer."""
    found = {
        broker: tuple(
            SizedDir(d.path, d.offline, d.usable_bytes, d.replica_bytes, d.future_bytes)
            for d in its
        )
        for broker, its in log_dirs.describe_log_dirs(client).items()
        if not isinstance(its, ClientError)
    }
    return LogSizes(time.monotonic(), found)


def move_directories(
    client: KafkaClient, moves: Mapping[int, Mapping[TopicPartition, str]]
) -> dict[str, str]:
    """Broker → replica → its new directory. Returns what was refused."""
    return {
        f"{place} on broker {broker}": error.detail
        for broker, wanted in moves.items()
        for place, error in log_dirs.move_replicas(client, broker, wanted).items()
    }
