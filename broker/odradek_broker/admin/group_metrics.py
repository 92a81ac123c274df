"""Groups in /metrics: counts by state, members, offsets; under the names of Kafka dashboards."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from odradek_broker.group.service import GroupService
from odradek_broker.group.states import GroupState

# By type of group: the states of which Kafka has a metric.
STATES = {
    "Consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "Share": ("Empty", "Stable", "Dead"),
    "Streams": ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),
}
PREFIX = "kafka_coordinator_group_groupmetadatamanager"


def group_metrics(groups: GroupService) -> Iterable[Metric]:
    """The metrics of the groups that this broker coordinates."""
    states: Counter[str] = Counter()  # of classic groups
    modern_states: Counter[tuple[str, str]] = Counter()
    types: Counter[str] = Counter()
    members = GaugeMetricFamily(
        "kafka_consumergroup_members", "Members of a group.", labels=("consumergroup",)
    )
    offsets = shards = 0
    for shard in groups.shards():
        shards += 1
        offsets += shard.offsets.count
        for group in shard.groups.values():
            types[group.type_name] += 1
            if group.type_name in STATES:
                modern_states[group.type_name, group.state_name] += 1
            else:
                states[group.state_name] += 1
            members.add_metric((group.group_id,), group.member_count)
    yield members
    yield _gauge(f"{PREFIX}_numgroups", "Groups.", types.total())
    for state in GroupState:
        name = f"{PREFIX}_numgroups{state.value.lower()}"
        yield _gauge(name, f"Classic groups in state {state.value}.", states[state.value])
    yield _gauge(f"{PREFIX}_numoffsets", "Committed offsets.", offsets)
    by_type = GaugeMetricFamily(
        "kafka_server_group_coordinator_metrics_group_count", "Groups.", labels=("protocol",)
    )
    for type_name in ("Classic", *STATES):
        by_type.add_metric((type_name.lower(),), types[type_name])
    yield by_type
    for type_name, names in STATES.items():
        by_state = GaugeMetricFamily(
            f"kafka_server_group_coordinator_metrics_{type_name.lower()}_group_count",
            f"Groups of the {type_name.lower()} protocol.",
            labels=("state",),
        )
        for name in names:
            by_state.add_metric((name,), modern_states[type_name, name])
        yield by_state
    coordinator = groups.coordinator
    loading = sum(shard is None for _, shard in coordinator.shards())
    partitions = GaugeMetricFamily(
        "kafka_server_group_coordinator_metrics_num_partitions",
        "Partitions of __consumer_offsets that this broker leads.",
        labels=("state",),
    )
    partitions.add_metric(("active",), shards)
    partitions.add_metric(("loading",), loading)
    yield partitions
    counted = {
        "offset_commit": groups.metrics.offset_commits,
        "offset_expiration": groups.metrics.offset_expirations,
        "offset_deletion": groups.metrics.offset_deletions,
        "group_completed_rebalance": groups.metrics.completed_rebalances,
        "partition_load": coordinator.loads,
    }
    for name, value in counted.items():
        # A gauge, because the name of a counter would have to end in _total.
        metric = f"kafka_server_group_coordinator_metrics_{name}_count"
        yield _gauge(metric, f"{name.replace('_', ' ')}s since the start.", value)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
