"""What the internal topics look like when they are created on demand. Pure.

Replication: `offsets.topic.replication.factor` where it is set; Kafka's default of 3 would keep a
single broker from ever having a group, so unset it means 3, or as many brokers as the cluster
has if it has fewer. Brokers that are registered but away count, and so do the voters that
`controller.quorum.voters` lists: a cluster of three that is starting does not get topics with
one replica because the first broker is ahead.
"""

from typing import NamedTuple

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.runtime.settings import Settings

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
REPLICATION_FACTOR_WANTED = 3


class InternalTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


def internal_topic(name: str, settings: Settings, image: MetadataImage) -> InternalTopic:
    """Of `__consumer_offsets` or `__transaction_state`."""
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
