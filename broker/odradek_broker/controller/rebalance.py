"""Automatic leader balance: leadership goes back to the preferred replicas (MISSION C9).

After a broker was away, others lead what it should. Every
`leader.imbalance.check.interval.seconds`, when `auto.leader.rebalance.enable` is on, each broker
that leads too few of the partitions that prefer it gets those back that it can lead. Too few is
more than `odradek.leader.imbalance.per.broker.percentage` percent missing; 0, the default, is
what Apache Kafka does since version 4: any.
"""

from collections import Counter

from odradek_broker.controller.partition_changes import (
    PartitionChanges,
    Strategy,
    active_brokers,
)
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import PartitionChangeRecord

# A change of leader costs every client of the partition a moment: so not all at once.
ELECTIONS_MAX = 1000


def imbalance(image: MetadataImage) -> tuple[Counter[int], Counter[int]]:
    """How many partitions prefer each broker, and how many of them others lead."""
    preferred: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            first = partition.replicas[0]
            preferred[first] += 1
            elsewhere[first] += partition.leader != first
    return preferred, elsewhere


def balance_leaders(
    image: MetadataImage, imbalance_percentage: int = 0
) -> list[PartitionChangeRecord]:
    """At most ELECTIONS_MAX; that many mean that there may be more to do."""
    preferred, elsewhere = imbalance(image)
    brokers = {
        broker
        for broker, count in elsewhere.items()
        if count * 100 > imbalance_percentage * preferred[broker]
    }
    live = active_brokers(image)
    brokers &= live.keys()
    changes = PartitionChanges(image, live)
    records: list[PartitionChangeRecord] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            first = partition.replicas[0]
            if partition.leader == first or first not in brokers or first not in partition.isr:
                continue
            record = changes.of(topic, index, strategy=Strategy.PREFERRED, unclean=False)
            if record is not None:
                records.append(record)
            if len(records) >= ELECTIONS_MAX:
                return records
    return records
