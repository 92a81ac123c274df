"""OffsetForLeaderEpoch (23), v2–4: the end offset of a leader epoch, with which a reader detects
that the log was truncated after it had read from it (KIP-320).
"""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 23
VERSIONS = range(2, 5)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    return Struct(
        topics=[
            Struct(
                topic=topic.topic,
                partitions=[_answer(ctx, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(ctx: RequestContext, topic: str, asked: Struct) -> Struct:
    answer = Struct(
        partition=asked.partition, error_code=ErrorCode.none, leader_epoch=-1, end_offset=-1
    )
    try:
        partition = ctx.broker.partitions.get(topic, asked.partition)
        partition.led_here(asked.current_leader_epoch)
        if asked.leader_epoch == partition.leader_epoch:
            answer.leader_epoch = partition.leader_epoch
            answer.end_offset = partition.log.log_end_offset
        else:
            found = partition.log.end_offset_for_epoch(asked.leader_epoch)
            answer.leader_epoch, answer.end_offset = found
    except KafkaError as error:
        answer.error_code = error.code
    return answer
