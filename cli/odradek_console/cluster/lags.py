"""Lag of many groups with few requests: a request per coordinator, not per group.

Versions of FindCoordinator and OffsetFetch that name many groups are from Kafka 3; older brokers
are asked group by group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek_protocol.client.admin.groups import (
    OFFSETS_BY_NAME_MAX,
    GroupListing,
    committed_offsets,
)
from odradek_protocol.client.admin.offsets import LATEST, list_offsets
from odradek_protocol.client.admin.share_groups import start_offsets
from odradek_protocol.client.errors import NONE, ClientError
from odradek_protocol.client.fan_out import fan_out
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import AnyBroker, Broker, CoordinatorType
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

GROUPS_PER_REQUEST = 100
Committed = dict[TopicPartition, int]


@dataclass(frozen=True)
class Lag:
    """Of one group; `unknown` counts partitions whose end the user may not see, or is away."""

    total: int
    partitions: int | None  # None: not known, as for a query of Spark
    unknown: int


def lags_of(client: KafkaClient, groups: Iterable[GroupListing]) -> dict[str, Lag]:
    """Groups whose offsets the user may not read are left out."""
    listed = list(groups)
    committed = committed_of(client, [one.group_id for one in listed if one.is_consumer])
    ends = list_offsets(client, {place for found in committed.values() for place in found}, LATEST)
    lags = {group: _lag(found, ends) for group, found in committed.items()}
    for one in listed:
        if one.is_share:
            lag = _share_lag(client, one.group_id)
            if lag is not None:
                lags[one.group_id] = lag
    return lags


def _lag(committed: Committed, ends: Mapping[TopicPartition, int | ClientError]) -> Lag:
    total = unknown = 0
    for place, offset in committed.items():
        end = ends.get(place)
        if isinstance(end, int):
            total += max(end - offset, 0)
        else:
            unknown += 1
    return Lag(total, len(committed), unknown)


def _share_lag(client: KafkaClient, group: str) -> Lag | None:
    try:
        found = start_offsets(client, group)
    except ClientError:
        return None
    lags = [None if isinstance(one, ClientError) else one.lag for one in found.values()]
    known = [lag for lag in lags if lag is not None]
    return Lag(sum(known), len(lags), len(lags) - len(known))


def committed_of(client: KafkaClient, groups: list[str]) -> dict[str, Committed]:
    """Group → its committed offsets; groups that cannot be read are left out."""
    by_broker: dict[int, list[str]] = {}
    alone: list[str] = []
    for part in _parts(groups):
        try:
            request = Struct(key=part[0], key_type=CoordinatorType.GROUP, coordinator_keys=part)
            answer = client.call(AnyBroker(), ApiKey.FIND_COORDINATOR, request)
        except ClientError:
            alone += part
            continue
        if not answer.coordinators:  # a broker before Kafka 3: it answered for the first
            alone += part
            continue
        for found in answer.coordinators:
            if found.error_code == NONE:
                by_broker.setdefault(found.node_id, []).append(found.key)
    asks = {
        broker: lambda broker=broker, names=names: _fetch(client, broker, names)
        for broker, names in by_broker.items()
    }
    committed: dict[str, Committed] = {}
    for answer_of_broker in fan_out(asks).values():
        if not isinstance(answer_of_broker, ClientError):
            committed |= answer_of_broker
    for group in alone:
        try:
            offsets = committed_offsets(client, group)
        except ClientError:
            continue
        committed[group] = {place: one.offset for place, one in offsets.items()}
    return committed


def _fetch(client: KafkaClient, broker: int, groups: list[str]) -> dict[str, Committed]:
    committed: dict[str, Committed] = {}
    for part in _parts(groups):
        wanted = [Struct(group_id=group, topics=None) for group in part]
        request = Struct(groups=wanted, group_id=part[0], topics=None, require_stable=False)
        answer = client.call(
            Broker(broker), ApiKey.OFFSET_FETCH, request, max_version=OFFSETS_BY_NAME_MAX
        )
        for group in answer.groups:
            if group.error_code == NONE:
                committed[group.group_id] = {
                    TopicPartition(topic.name, p.partition_index): int(p.committed_offset)
                    for topic in group.topics
                    for p in topic.partitions
                    if p.error_code == NONE and p.committed_offset >= 0
                }
    return committed


def _parts(names: list[str]) -> Iterable[list[str]]:
    for at in range(0, len(names), GROUPS_PER_REQUEST):
        yield names[at : at + GROUPS_PER_REQUEST]
