"""Brokers: which are registered, fenced or not; remove one for good; features of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from odradek_protocol.acl_codes import AclOperation
from odradek_protocol.client.admin.topics import timeout_ms
from odradek_protocol.client.errors import raise_error_in
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.routes import AnyBroker, Controller
from odradek_protocol.client.settings import Address
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct


@dataclass(frozen=True)
class RegisteredBroker:
    broker_id: int
    address: Address
    rack: str | None
    fenced: bool  # known only from Kafka 4 on; before, fenced brokers are not listed


@dataclass(frozen=True)
class ClusterDescription:
    cluster_id: str
    brokers: dict[int, RegisteredBroker]  # in the order of their ids


class FeatureChange(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def describe_cluster(client: KafkaClient) -> ClusterDescription:
    """All registered brokers; features are `KafkaClient.features`."""
    request = Struct(include_fenced_brokers=True)
    answer = client.call(AnyBroker(), ApiKey.DESCRIBE_CLUSTER, request)
    raise_error_in(answer)
    return ClusterDescription(
        answer.cluster_id,
        {
            b.broker_id: RegisteredBroker(b.broker_id, Address(b.host, b.port), b.rack, b.is_fenced)
            for b in sorted(answer.brokers, key=lambda b: b.broker_id)
        },
    )


def allowed_on_cluster(client: KafkaClient) -> frozenset[AclOperation]:
    """What this user may do with the cluster; nothing if they may not describe it."""
    request = Struct(include_cluster_authorized_operations=True)
    answer = client.call(AnyBroker(), ApiKey.DESCRIBE_CLUSTER, request)
    raise_error_in(answer)
    bits = max(
        int(answer.cluster_authorized_operations), 0
    )  # the lowest number: not allowed to ask
    return frozenset(one for one in AclOperation if bits & (1 << one))


def unregister_broker(client: KafkaClient, broker_id: int) -> None:
    """Forgets a broker that has stopped for good."""
    request = Struct(broker_id=broker_id)
    raise_error_in(client.call(Controller(), ApiKey.UNREGISTER_BROKER, request))


def update_features(
    client: KafkaClient,
    levels: Mapping[str, int],
    change: FeatureChange = FeatureChange.UPGRADE,
    *,
    validate_only: bool = False,
) -> None:
    """Feature → its new level: all are changed, or none."""
    request = Struct(
        timeout=timeout_ms(client),
        feature_updates=[
            Struct(feature=name, max_version_level=level, upgrade_type=change)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    raise_error_in(client.call(Controller(), ApiKey.UPDATE_FEATURES, request))
