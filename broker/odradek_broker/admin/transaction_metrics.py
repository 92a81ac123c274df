"""Transactions in /metrics: by state, their ends, their verification, and the oldest one.

The names are those of Kafka's beans where it has one (AddPartitionsToTxnManager). Each broker
reports the transactional ids of the partitions of `__transaction_state` that it leads, so all
brokers together report a cluster.
"""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from odradek_broker.txn.service import TransactionCoordinator
from odradek_broker.txn.states import TransactionState
from odradek_broker.txn.verifier import TransactionVerifier

COORDINATOR = "odradek_transaction_coordinator"
VERIFIER = "kafka_server_addpartitionstotxnmanager"


def transaction_metrics(
    coordinator: TransactionCoordinator, verifier: TransactionVerifier, now_ms: int
) -> Iterable[Metric]:
    """`now_ms` is wall time, as in the records of transactions."""
    shards = [shard for _, shard in coordinator.shards.shards()]
    held = [one for shard in shards if shard is not None for one in shard.transactions.values()]
    by_state = Counter(one.state for one in held)
    states = GaugeMetricFamily(
        f"{COORDINATOR}_transactional_ids", "Transactional ids, by state.", labels=("state",)
    )
    for state in TransactionState:
        states.add_metric((state.kafka_name,), by_state[state])
    yield states
    open_since = [one.start_timestamp_ms for one in held if one.state is TransactionState.ONGOING]
    yield GaugeMetricFamily(
        f"{COORDINATOR}_oldest_open_seconds",
        "Age of the oldest open transaction; 0 if none is open.",
        value=max(now_ms - min(open_since), 0) / 1000 if open_since else 0,
    )
    partitions = GaugeMetricFamily(
        f"{COORDINATOR}_partitions",
        "Partitions of __transaction_state that this broker leads.",
        labels=("state",),
    )
    partitions.add_metric(("active",), sum(shard is not None for shard in shards))
    partitions.add_metric(("loading",), sum(shard is None for shard in shards))
    yield partitions
    counted = coordinator.metrics
    ended = CounterMetricFamily(
        f"{COORDINATOR}_ended", "Transactions whose markers are written.", labels=("outcome",)
    )
    ended.add_metric(("commit",), counted.committed)
    ended.add_metric(("abort",), counted.aborted)
    yield ended
    yield CounterMetricFamily(
        f"{COORDINATOR}_timed_out",
        "Transactions that were aborted after their timeout.",
        value=counted.timed_out,
    )
    yield CounterMetricFamily(
        f"{VERIFIER}_verification",
        "Partitions verified or added.",
        value=verifier.metrics.verifications,
    )
    yield CounterMetricFamily(
        f"{VERIFIER}_verificationfailure",
        "Partitions that could not be verified or added (VerificationFailureRate is their rate).",
        value=verifier.metrics.failures,
    )
