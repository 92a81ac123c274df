"""DescribeQuorum (55), v0–2: leader, voters and observers of the metadata log, and their offsets.

Other topics are unknown to it, as in Kafka. Only the leader of the quorum knows the offsets, so the
request is forwarded there. Times are wall-clock times, as in Kafka: the leader is always caught up,
a replica that never was has -1.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.raft.log_files import METADATA_PARTITION
from odradek_broker.raft.quorum_state import Progress, QuorumState
from odradek_broker.raft.rpc_requests import endpoint_structs
from odradek_broker.raft.values import ReplicaKey
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

API_KEY = 55
VERSIONS = range(0, 3)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    async def decide(asked: Struct) -> Struct:
        return _describe(ctx, asked)

    return await to_controller(ctx, request, decide)


def _describe(ctx: RequestContext, request: Struct) -> Struct:
    asked = [(t.topic_name, p.partition_index) for t in request.topics for p in t.partitions]
    found = asked == [METADATA_PARTITION]
    topics = [
        Struct(
            topic_name=topic.topic_name,
            partitions=[
                _quorum(ctx) if found else _unknown(one.partition_index) for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    voters = ctx.broker.quorum.state.voters.voters if found else ()
    return Struct(
        error_code=ErrorCode.none,
        error_message="",
        topics=topics,
        nodes=[
            Struct(node_id=voter.key.id, listeners=endpoint_structs(voter.endpoints))
            for voter in voters
        ],
    )


def _quorum(ctx: RequestContext) -> Struct:
    state = ctx.broker.quorum.state
    leadership = state.leadership
    known = leadership.progress if leadership else {}
    voters = state.voters
    return Struct(
        partition_index=METADATA_PARTITION.partition,
        error_code=ErrorCode.none,
        error_message="",
        leader_id=ctx.broker.node_id,
        leader_epoch=state.epoch,
        high_watermark=state.high_watermark,
        current_voters=[_replica(ctx, state, key, known.get(key)) for key in voters.keys],
        observers=[
            _replica(ctx, state, key, progress)
            for key, progress in sorted(known.items())
            if not voters.contains(key)
        ],
    )


def _replica(
    ctx: RequestContext, state: QuorumState, key: ReplicaKey, progress: Progress | None
) -> Struct:
    clock = ctx.broker.clock
    to_wall_ms = clock.now_ms() - clock.monotonic_ms()
    end_offset, fetched_ms, caught_up_ms = -1, -1.0, -1.0
    if key == state.key:
        end_offset = state.log.end_offset
        fetched_ms = caught_up_ms = clock.now_ms()
    elif progress is not None:
        end_offset = progress.match_offset
        fetched_ms = progress.last_fetch_ms + to_wall_ms
        caught_up_ms = max(progress.caught_up_ms + to_wall_ms, -1.0)
    return Struct(
        replica_id=key.id,
        replica_directory_id=key.directory_id,
        log_end_offset=end_offset,
        last_fetch_timestamp=int(fetched_ms),
        last_caught_up_timestamp=int(caught_up_ms),
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
