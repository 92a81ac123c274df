"""What /metrics says about groups, under the names of kafka_exporter and of Kafka's own metrics.

Each broker tells of the groups that it coordinates, so a sum over all brokers tells of all. The
cost is bounded: beyond PARTITION_SERIES_MAX partitions only the sums per group and topic are
told, and `odradek_consumergroup_partitions_left_out` says how many are missing.
"""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from odradek_broker.group.lag import EndOf
from odradek_broker.group.service import GroupService

PARTITION_SERIES_MAX = 20_000

CLASSIC_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
CONSUMER_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")


def group_families(groups: GroupService, end_of: EndOf) -> Iterable[Metric]:
    yield from _lag(groups, end_of)
    yield from _states(groups)


def _lag(groups: GroupService, end_of: EndOf) -> Iterable[Metric]:
    place = ("consumergroup", "topic", "partition")
    offset = GaugeMetricFamily(
        "kafka_consumergroup_current_offset", "Committed offset.", labels=place
    )
    lag = GaugeMetricFamily(
        "kafka_consumergroup_lag", "Records between the committed offset and the end.", labels=place
    )
    offset_sum = GaugeMetricFamily(
        "kafka_consumergroup_current_offset_sum", "Of all partitions.", labels=place[:2]
    )
    lag_sum = GaugeMetricFamily(
        "kafka_consumergroup_lag_sum", "Of all partitions whose end is known.", labels=place[:2]
    )
    members = GaugeMetricFamily(
        "kafka_consumergroup_members", "Members of the group.", labels=place[:1]
    )
    told = left_out = 0
    for shard in groups.shards():
        for group_id, group in shard.groups.items():
            members.add_metric((group_id,), group.member_count)
            offsets: Counter[str] = Counter()
            lags: Counter[str] = Counter()
            for key, committed in shard.offsets.of_group(group_id).items():
                topic, partition = key
                end = end_of(key)
                behind = None if end is None else max(end - committed.offset, 0)
                offsets[topic] += committed.offset
                if behind is not None:
                    lags[topic] += behind
                if told >= PARTITION_SERIES_MAX:
                    left_out += 1
                    continue
                told += 1
                labels = (group_id, topic, str(partition))
                offset.add_metric(labels, committed.offset)
                if behind is not None:
                    lag.add_metric(labels, behind)
            for topic, value in offsets.items():
                offset_sum.add_metric((group_id, topic), value)
            for topic, value in lags.items():
                lag_sum.add_metric((group_id, topic), value)
    missing = GaugeMetricFamily(
        "odradek_consumergroup_partitions_left_out", "Too many to tell of each.", value=left_out
    )
    return offset, lag, offset_sum, lag_sum, members, missing


def _states(groups: GroupService) -> Iterable[Metric]:
    shards = list(groups.shards())
    counted = Counter(
        (group.type_name, group.state_name) for shard in shards for group in shard.groups.values()
    )
    by_type = GaugeMetricFamily(
        "kafka_server_group_coordinator_metrics_group_count", "Groups.", labels=("protocol",)
    )
    for type_name in ("Classic", "Consumer"):
        number = sum(count for (kind, _), count in counted.items() if kind == type_name)
        by_type.add_metric((type_name.lower(),), number)
    by_state = GaugeMetricFamily(
        "kafka_server_group_coordinator_metrics_consumer_group_count",
        "Groups of the consumer protocol.",
        labels=("state",),
    )
    for state in CONSUMER_STATES:
        by_state.add_metric((state.lower(),), counted["Consumer", state])
    manager = "kafka_coordinator_group_groupmetadatamanager_num"
    yield from (by_type, by_state)
    yield GaugeMetricFamily(f"{manager}groups", "Groups.", value=sum(counted.values()))
    for state in CLASSIC_STATES:
        name = f"{manager}groups{state.lower()}"
        yield GaugeMetricFamily(name, f"Classic groups, {state}.", value=counted["Classic", state])
    offsets = sum(shard.offsets.count for shard in shards)
    yield GaugeMetricFamily(f"{manager}offsets", "Committed offsets.", value=offsets)
    for name, attribute in (
        ("offset_commit", "offset_commits"),
        ("offset_expiration", "offset_expirations"),
        ("offset_deletion", "offset_deletions"),
    ):
        yield CounterMetricFamily(
            f"kafka_server_group_coordinator_metrics_{name}_count",
            name.replace("_", " "),
            value=sum(getattr(shard, attribute) for shard in shards),
        )
