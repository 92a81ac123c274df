"""Eligible leader replicas when min.insync.replicas is lowered.

They have every committed record because a leader below min.insync.replicas commits nothing. When
the setting is lowered, such a leader may commit alone from then on. So the partition's eligible
replicas are dropped in the same batch of the log.
"""

from collections.abc import Iterator
from typing import TypeVar

from odradek_broker.controller.partition_changes import MIN_ISR, TopicRules
from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import ConfigRecord, PartitionChangeRecord

T = TypeVar("T")


def drop_where_min_isr_fell(
    image: MetadataImage, result: ControllerResult[T]
) -> ControllerResult[T]:
    """The result of a change of settings, with the partition changes that follow from it."""
    changes = [record for record in result.records if isinstance(record, ConfigRecord)]
    if not any(record.name == MIN_ISR for record in changes):
        return result
    delta = MetadataDelta(image)
    for record in changes:
        delta.replay(record)
    after = delta.finish(image.offset + len(changes)).after
    return ControllerResult([*result.records, *_dropped(after)], result.response)


def _dropped(image: MetadataImage) -> Iterator[PartitionChangeRecord]:
    rules = TopicRules(image, unclean_default=False)
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if not (partition.eligible_leader_replicas or partition.last_known_elr):
                continue
            if len(partition.isr) >= min(rules.min_isr(topic.name), len(partition.replicas)):
                yield PartitionChangeRecord(
                    index, topic.id, eligible_leader_replicas=(), last_known_elr=()
                )
