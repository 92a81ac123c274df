"""TxnOffsetCommit (28), v0–5: a group's offsets as part of a transaction.

They are pending until the transaction's marker comes to the group's partition of
`__consumer_offsets`; whoever asks for stable offsets meanwhile hears UNSTABLE_OFFSET_COMMIT.
"""

from odradek_broker.coordinator.result import Producer
from odradek_broker.group.offset_requests import CommitRequest
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.offset_commit import answer, split
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.wire.struct import Struct

API_KEY = 28
VERSIONS = range(0, 6)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    offsets, refused = split(ctx.broker.metadata.image, request.topics)
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        codes = await ctx.broker.groups.commit(
            CommitRequest(
                group_id=request.group_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation=request.generation_id,
                offsets=offsets,
                transactional=True,
            ),
            Producer(request.producer_id, request.producer_epoch),
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.group_id_not_found:
            code = ErrorCode.illegal_generation
        codes = [code] * len(offsets)
    return answer(request.topics, refused, codes)
