"""Fetch (1) of consumers: reads up to the high watermark, or the last stable offset.

Called by `fetch.py`. Consumers read from the leader, or from v11 on from a follower; the leader
sends a consumer that named its rack to a follower there (KIP-392, replica.selector.class).
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.fetch_records import (
    Budget,
    divergence,
    partition_result,
    read_records,
)
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.read_replica import RACK_AWARE, preferred_read_replica
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, Offset
from odradek_protocol.messages.fetch import FetchPartition, FetchPartitionResult, FetchRequest

READ_COMMITTED = 1
# Older consumers do not read from followers.
FOLLOWER_FETCHING_FROM = 11


def read_for_consumer(
    ctx: RequestContext,
    request: FetchRequest,
    partition: Partition,
    asked: FetchPartition,
    budget: Budget,
) -> tuple[FetchPartitionResult, Offset]:
    """The result, and the end of the records that could be read."""
    _check_readable(ctx, partition, asked)
    log = partition.log
    read_committed = request.isolation_level == READ_COMMITTED
    end = partition.last_fetchable_offset(read_committed)
    diverging = divergence(partition, asked)
    # As in Kafka: without a read of the log the list of aborted transactions is null.
    if diverging is not None:
        return partition_result(partition, asked, None, diverging), end
    preferred = _preferred_replica(ctx, request, partition, asked)
    if preferred is not None:
        result = partition_result(partition, asked, None, None)
        return result._replace(preferred_read_replica=preferred), end
    aborted: list[tuple[int, int]] | None = [] if read_committed else None
    records = None
    at_the_end = end <= asked.fetch_offset <= log.log_end_offset
    if not at_the_end:
        records, first = read_records(partition, asked, budget, end)
        if aborted is not None and records is not None:
            aborted.extend(log.aborted_in(records, first, asked.fetch_offset, end))
    return partition_result(partition, asked, records, None, aborted), end


def _check_readable(ctx: RequestContext, partition: Partition, asked: FetchPartition) -> None:
    # In a fetch (and only there) every negative number means that the epoch is unknown.
    partition.check_leader_epoch(max(asked.current_leader_epoch, -1))
    if partition.leading is None and (
        partition.following is None or ctx.api_version < FOLLOWER_FETCHING_FROM
    ):
        raise KafkaError(ErrorCode.not_leader_or_follower)


def _preferred_replica(
    ctx: RequestContext, request: FetchRequest, partition: Partition, asked: FetchPartition
) -> BrokerId | None:
    rack, broker = request.rack_id, ctx.broker
    if not rack or partition.leading is None:
        return None
    if broker.settings.optional_str("replica.selector.class") != RACK_AWARE:
        return None
    image = broker.partitions.image
    return preferred_read_replica(partition.leading, image, rack, ctx.listener, asked.fetch_offset)
