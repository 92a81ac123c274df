"""The lag of groups, in /metrics under the names of kafka_exporter.

Each broker reports the groups that it coordinates, so all brokers together report all groups. The
cost is bounded: beyond PARTITION_SERIES_MAX partitions only the sums per group and topic are
reported, and `odradek_consumergroup_partitions_left_out` says how many partitions are missing.
"""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from odradek_broker.group.lag import EndOf
from odradek_broker.group.service import GroupService

PARTITION_SERIES_MAX = 20_000


def lag_metrics(groups: GroupService, end_of: EndOf) -> Iterable[Metric]:
    place = ("consumergroup", "topic", "partition")
    offset = GaugeMetricFamily(
        "kafka_consumergroup_current_offset", "Committed offset.", labels=place
    )
    lag = GaugeMetricFamily(
        "kafka_consumergroup_lag", "Records between the committed offset and the end.", labels=place
    )
    offset_sum = GaugeMetricFamily(
        "kafka_consumergroup_current_offset_sum",
        "Committed offsets, summed over the partitions.",
        labels=place[:2],
    )
    lag_sum = GaugeMetricFamily(
        "kafka_consumergroup_lag_sum",
        "Lag, summed over the partitions whose end offset is known.",
        labels=place[:2],
    )
    series = left_out = 0
    for shard in groups.shards():
        for group_id in shard.offsets.groups():
            offsets: Counter[str] = Counter()
            lags: Counter[str] = Counter()
            for key, committed in shard.offsets.of_group(group_id).items():
                topic, partition = key
                end = end_of(key)
                behind = None if end is None else max(end - committed.offset, 0)
                offsets[topic] += committed.offset
                if behind is not None:
                    lags[topic] += behind
                if series >= PARTITION_SERIES_MAX:
                    left_out += 1
                    continue
                series += 1
                labels = (group_id, topic, str(partition))
                offset.add_metric(labels, committed.offset)
                if behind is not None:
                    lag.add_metric(labels, behind)
            for topic, value in offsets.items():
                offset_sum.add_metric((group_id, topic), value)
            for topic, value in lags.items():
                lag_sum.add_metric((group_id, topic), value)
    missing = GaugeMetricFamily(
        "odradek_consumergroup_partitions_left_out",
        "Partitions without series of their own, because there are too many.",
        value=left_out,
    )
    return offset, lag, offset_sum, lag_sum, missing
