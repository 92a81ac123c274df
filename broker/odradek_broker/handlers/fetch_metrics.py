"""The counters per topic and per replica of Fetch (1).

Called by `fetch.py` for each result of a consumer.
"""

from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.fetch_records import length_of
from odradek_broker.partition.partition import Partition
from odradek_protocol.messages.fetch import FetchPartitionResult


def count_fetch(
    broker: BrokerContext, partition: Partition | None, result: FetchPartitionResult
) -> None:
    if partition is None:
        return  # a topic name that does not exist must not become a metric
    metrics = broker.metrics.topic(partition.topic_partition.topic)
    metrics.total_fetch_requests += 1
    if result.error_code:
        metrics.failed_fetch_requests += 1
    else:
        length = length_of(result.records)
        metrics.bytes_out += length
        partition.load.bytes_out += length
        partition.load.fetches += 1
