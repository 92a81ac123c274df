"""Share groups in /metrics: sessions, deliveries, acknowledgements, and records in flight.

The names are those of Kafka's beans where it has one (ShareSessionCache, ShareGroupMetrics,
SharePartitionMetrics, share-coordinator-metrics). Each broker reports the partitions that it leads,
so all brokers together report a group.
"""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from odradek_broker.share.coordinator import ShareCoordinator
from odradek_broker.share.held import HeldPartition
from odradek_broker.share.service import ShareService
from odradek_protocol.share_codes import AcknowledgeType

# Two series per share partition; beyond this only the totals are reported.
PARTITION_SERIES_MAX = 20_000
PLACE = ("group", "topic", "partition")


def share_metrics(shares: ShareService, coordinator: ShareCoordinator) -> Iterable[Metric]:
    held = [one for one in shares.held() if one.is_valid]
    cache, group = "kafka_server_sharesessioncache", "kafka_server_sharegroupmetrics"
    yield _gauge(f"{cache}_sharesessionscount", "Open share sessions.", len(shares.sessions))
    yield _gauge(f"{cache}_sharepartitionscount", "Share partitions in memory.", len(held))
    counted = shares.metrics
    acknowledged = CounterMetricFamily(
        f"{group}_recordacknowledgement", "Records acknowledged, by type.", labels=("acktype",)
    )
    for kind, number in counted.acknowledged.items():
        acknowledged.add_metric((AcknowledgeType(kind).name.lower(),), number)
    yield acknowledged
    for name, text, number in (
        (f"{group}_recordacquired", "Records delivered to members.", counted.acquired),
        (
            f"{group}_recordacquiredagain",
            "Records delivered that had been delivered before.",
            counted.acquired_again,
        ),
        (
            "kafka_server_sharepartitionmetrics_acquisitionlocktimeout",
            "Records whose lock timed out.",
            counted.lock_timeouts,
        ),
        (
            "odradek_share_state_write_failures",
            "Writes of a share partition's state that failed.",
            counted.write_failures,
        ),
    ):
        yield CounterMetricFamily(name, text, value=number)
    yield from _partitions(held)
    yield from _coordinator(coordinator)


def _partitions(held: list[HeldPartition]) -> Iterable[Metric]:
    in_flight = GaugeMetricFamily(
        "kafka_server_sharepartitionmetrics_inflightmessagecount",
        "Records that are locked, or wait to be delivered again.",
        labels=PLACE,
    )
    lag = GaugeMetricFamily(
        "kafka_sharegroup_lag", "Records that are not done, up to the end.", labels=PLACE
    )
    for one in held[:PARTITION_SERIES_MAX]:
        share, partition = one.share, one.partition
        place = (one.key.group_id, partition.topic_partition.topic, str(one.key.partition))
        in_flight.add_metric(place, share.in_flight)
        behind = partition.high_watermark - share.start_offset - share.complete
        lag.add_metric(place, max(behind, 0))
    yield from (in_flight, lag)
    yield _gauge(
        "odradek_share_partitions_left_out",
        "Share partitions without series of their own, because there are too many.",
        max(len(held) - PARTITION_SERIES_MAX, 0),
    )


def _coordinator(coordinator: ShareCoordinator) -> Iterable[Metric]:
    shards = [shard for _, shard in coordinator.shards.shards()]
    partitions = GaugeMetricFamily(
        "kafka_server_share_coordinator_metrics_num_partitions",
        "Partitions of __share_group_state that this broker leads.",
        labels=("state",),
    )
    partitions.add_metric(("active",), sum(shard is not None for shard in shards))
    partitions.add_metric(("loading",), sum(shard is None for shard in shards))
    yield partitions


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
