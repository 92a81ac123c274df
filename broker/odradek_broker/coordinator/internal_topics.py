"""The settings with which internal topics are created on demand. Does no I/O.

The replication factor is `offsets.topic.replication.factor` if it is set. With Kafka's default of
3 a single broker could never have a group, so unset it means 3, or the number of brokers if there
are fewer. Registered brokers count even if they are down, and so do the voters listed in
`controller.quorum.voters`: a cluster of three that is starting must not get topics with one
replica because one broker is up first.
"""

from typing import NamedTuple

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.runtime.settings import Settings

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
REPLICATION_FACTOR_WANTED = 3


class InternalTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


def internal_topic(name: str, settings: Settings, image: MetadataImage) -> InternalTopic:
    """Settings of `__consumer_offsets`, `__transaction_state` or `__share_group_state`."""
    if name == OFFSETS_TOPIC:
        return InternalTopic(
            name,
            settings.int("offsets.topic.num.partitions"),
            _replication("offsets.topic.replication.factor", settings, image),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.int("offsets.topic.segment.bytes")),
            },
        )
    if name == SHARE_STATE_TOPIC:
        # Not compacted: the updates of a key add up. The coordinator deletes obsolete records.
        return InternalTopic(
            name,
            settings.int("share.coordinator.state.topic.num.partitions"),
            _replication("share.coordinator.state.topic.replication.factor", settings, image),
            {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "compression.type": "producer",
                "min.insync.replicas": str(settings.int("share.coordinator.state.topic.min.isr")),
                "segment.bytes": str(settings.int("share.coordinator.state.topic.segment.bytes")),
            },
        )
    assert name == TRANSACTION_TOPIC, name
    return InternalTopic(
        name,
        settings.int("transaction.state.log.num.partitions"),
        _replication("transaction.state.log.replication.factor", settings, image),
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(settings.int("transaction.state.log.min.isr")),
            "segment.bytes": str(settings.int("transaction.state.log.segment.bytes")),
        },
    )


def _replication(name: str, settings: Settings, image: MetadataImage) -> int:
    if name in settings.static:
        return settings.int(name)
    brokers = max(len(image.brokers), len(settings.quorum_voters), 1)
    return min(REPLICATION_FACTOR_WANTED, brokers)
