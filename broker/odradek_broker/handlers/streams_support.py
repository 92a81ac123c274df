"""The common part of the requests of streams groups and their access rules."""

from typing import Any

from odradek_broker.controller.topic_names import validate_topic_name
from odradek_broker.coordinator.internal_topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
)
from odradek_broker.group.streams.topology import topics_named
from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.features import STREAMS_VERSION
from odradek_protocol.error_codes import ErrorCode, KafkaError

INTERNAL = frozenset((OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC))
PROTOCOL = "streams"


def check_enabled(ctx: RequestContext) -> None:
    """The feature streams.version, and group.coordinator.rebalance.protocols of this broker."""
    level = ctx.broker.metadata.image.features.get(STREAMS_VERSION, 0)
    if level < 1 or PROTOCOL not in ctx.broker.settings.list(
        "group.coordinator.rebalance.protocols"
    ):
        raise KafkaError(ErrorCode.unsupported_version)


def check_topics(topology: Any) -> None:
    """KafkaError(STREAMS_INVALID_TOPOLOGY) if it names a topic that it may not, or cannot, have."""
    names = topics_named(topology) if topology is not None else []
    prohibited = [name for name in names if name in INTERNAL]
    if prohibited:
        raise KafkaError(
            ErrorCode.streams_invalid_topology,
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is "
            "prohibited.",
        )
    invalid = [name for name in names if not _is_valid(name)]
    if invalid:
        raise KafkaError(
            ErrorCode.streams_invalid_topology,
            f"Topic names {','.join(invalid)} are not valid topic names.",
        )


def _is_valid(name: str) -> bool:
    try:
        validate_topic_name(name)
    except KafkaError:
        return False
    return True
