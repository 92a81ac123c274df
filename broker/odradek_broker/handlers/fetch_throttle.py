"""The leader's side of the replication throttle (KIP-73) in Fetch (1).

Called by `fetch_follower.py`; `partition/throttle.py` keeps the rate. Followers in the ISR are not
throttled, because acknowledgements wait for them.
"""

from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.fetch_records import Budget, read_records
from odradek_broker.log.types import FileRange
from odradek_broker.partition.partition import Partition
from odradek_protocol.messages.fetch import FetchPartition


def read_throttled(
    broker: BrokerContext,
    partition: Partition,
    asked: FetchPartition,
    budget: Budget,
    replica_id: int,
) -> FileRange | None:
    """The records up to the end of the log; None while the throttle's rate is exceeded."""
    service, now_ms = broker.partitions, broker.clock.monotonic_ms()
    throttle, topic_partition = service.leader_throttle, partition.topic_partition
    throttled = replica_id not in partition.isr and throttle.concerns(
        service.image.topic_config(topic_partition.topic), topic_partition.partition
    )
    if throttled and throttle.exceeded(now_ms):
        return None
    records, _ = read_records(partition, asked, budget, partition.log.written_offset)
    if throttled and records is not None:
        throttle.passed(records.length, now_ms)
    return records
