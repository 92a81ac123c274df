"""Fetch (1) of followers: reads up to the end of the log, and acknowledgements.

Called by `fetch.py` for requests with a replica id, which only listeners for brokers accept. A
follower's fetch offset acknowledges every record before it, see `partition/leader_state.py`.
"""

from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.fetch_records import Budget, divergence, partition_result
from odradek_broker.handlers.fetch_throttle import read_throttled
from odradek_broker.partition.leader_events import FollowerFetched, FollowerStopped
from odradek_broker.partition.partition import Partition
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, Offset
from odradek_protocol.messages.fetch import FetchPartition, FetchPartitionResult, FetchRequest


def check_sender(ctx: RequestContext) -> None:
    """A client that poses as a replica could acknowledge records that no follower has."""
    if ctx.listener not in ctx.broker.settings.listeners.from_brokers:
        raise KafkaError(ErrorCode.cluster_authorization_failed)


def note_stopped(broker: BrokerContext, request: FetchRequest) -> None:
    """The follower no longer fetches these partitions, so it must not join their ISRs."""
    partitions = broker.partitions
    stopped = FollowerStopped(BrokerId(request.replica_id))
    for name, topic_id, indexes in request.forgotten_topics:
        for index in indexes:
            if name is not None:
                partition = partitions.by_name.get((name, index))
            else:
                partition = partitions.by_id.get((topic_id or b"", index))
            if partition is not None:
                partitions.step(partition, stopped)


def read_for_follower(
    broker: BrokerContext,
    request: FetchRequest,
    partition: Partition,
    asked: FetchPartition,
    budget: Budget,
    *,
    acknowledges: bool,
) -> tuple[FetchPartitionResult, Offset]:
    """The result, and the end of the records that could be read.

    `acknowledges`: the fetch offset comes from this request, not from an earlier one.
    """
    partition.led_here(asked.current_leader_epoch)
    if asked.current_leader_epoch < 0:
        # Without an epoch the follower cannot acknowledge anything.
        known = partition.leading is not None and (
            request.replica_id in partition.leading.followers
        )
        raise KafkaError(ErrorCode.invalid_request if known else ErrorCode.not_leader_or_follower)
    log = partition.log
    diverging = divergence(partition, asked)
    records = None
    if diverging is None:
        if not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.offset_out_of_range)
        if acknowledges:
            broker.partitions.step(
                partition,
                FollowerFetched(
                    BrokerId(request.replica_id),
                    request.replica_epoch,
                    asked.fetch_offset,
                    asked.log_start_offset,
                    log.written_offset,
                ),
            )
        if asked.fetch_offset < log.written_offset:
            records = read_throttled(broker, partition, asked, budget, request.replica_id)
            if records is not None:
                partition.load.replicated_out += records.length
                partition.load.replications += 1
    return partition_result(partition, asked, records, diverging), log.written_offset
