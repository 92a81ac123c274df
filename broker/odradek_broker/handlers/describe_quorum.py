"""DescribeQuorum (55), v0–2: who votes about the metadata log. Here: this node, alone."""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.model.errors import ErrorCode
from odradek_broker.raft.log_files import METADATA_PARTITION
from odradek_broker.wire.struct import Struct

API_KEY = 55
VERSIONS = range(0, 3)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    found = False
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            if (topic.topic_name, asked.partition_index) == METADATA_PARTITION:
                found = True
                partitions.append(_quorum(ctx))
            else:
                partitions.append(_unknown(asked.partition_index))
        topics.append(Struct(topic_name=topic.topic_name, partitions=partitions))
    return Struct(
        error_code=ErrorCode.none,
        error_message="",
        topics=topics,
        nodes=[Struct(node_id=ctx.broker.node_id, listeners=[])] if found else [],
    )


def _quorum(ctx: RequestContext) -> Struct:
    controller = ctx.broker.controller
    now_ms = ctx.broker.clock.now_ms()
    end_offset = controller.image.offset + 1
    return Struct(
        partition_index=METADATA_PARTITION.partition,
        error_code=ErrorCode.none,
        error_message="",
        leader_id=ctx.broker.node_id,
        leader_epoch=controller.epoch,
        high_watermark=end_offset,
        current_voters=[
            Struct(
                replica_id=ctx.broker.node_id,
                log_end_offset=end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
        observers=[],
    )


def _unknown(partition: int) -> Struct:
    return Struct(
        partition_index=partition,
        error_code=ErrorCode.unknown_topic_or_partition,
        error_message="This server does not host this topic-partition.",
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )
