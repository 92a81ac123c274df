"""Automatic leader balance: moves leadership back to the preferred replicas (MISSION C9).

After a broker was down, other brokers lead its preferred partitions. Every
`leader.imbalance.check.interval.seconds`, if `auto.leader.rebalance.enable` is on, a broker gets
them back if it leads too few of them: more than
`odradek.leader.imbalance.per.broker.percentage` percent are led by others. The default is 0, as in
Apache Kafka since version 4.
"""

from collections import Counter

from odradek_broker.controller.partition_changes import (
    PartitionChanges,
    Strategy,
    active_brokers,
)
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import PartitionChangeRecord

# A change of the leader briefly interrupts every client of the partition: not all at once.
ELECTIONS_MAX = 1000


def imbalance(image: MetadataImage) -> tuple[Counter[int], Counter[int]]:
    """By broker: how many partitions prefer it, and how many of them other brokers lead."""
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
    """At most ELECTIONS_MAX records; if there are so many, more may follow."""
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
