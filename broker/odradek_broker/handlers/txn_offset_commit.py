"""TxnOffsetCommit (28), v0–5: commits a group's offsets as part of a transaction.

They are pending until the transaction's marker is written to the group's partition of
`__consumer_offsets`; until then OffsetFetch with require_stable gets UNSTABLE_OFFSET_COMMIT.

As with Produce, the transaction coordinator has to confirm that the partition is part of the
transaction. From v5 on that adds the partition; older clients send AddOffsetsToTxn (KIP-890).
"""

import asyncio
from functools import partial

from odradek_broker.coordinator.result import Producer
from odradek_broker.group.offset_requests import CommitRequest
from odradek_broker.handlers.add_offsets_to_txn import offsets_partition
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.offset_commit import answer, split
from odradek_broker.log.producer_state import NO_SEQUENCE
from odradek_broker.txn.verifier import Question, for_client
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 28
VERSIONS = range(0, 6)

ABORTABLE_SINCE = 4
ADDS_PARTITIONS_SINCE = 5


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    offsets, refused = split(ctx.broker.metadata.image, request.topics)
    if not offsets:
        return answer(request.topics, refused, [])  # nothing to write, so nothing to verify
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        await _confirm(ctx, request)
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


async def _confirm(ctx: RequestContext, request: Struct) -> None:
    """Returns when the transaction is known to be open in the group's partition."""
    broker, version = ctx.broker, ctx.api_version
    if not request.transactional_id:
        raise KafkaError(ErrorCode.invalid_request)
    adds = version >= ADDS_PARTITIONS_SINCE
    if not adds and not broker.settings.bool("transaction.partition.verification.enable"):
        return
    where = offsets_partition(broker, request.group_id)
    partition = broker.partitions.by_name.get(where)
    if partition is None or partition.leading is None:
        raise KafkaError(ErrorCode.not_coordinator)
    producer = request.producer_id, request.producer_epoch
    question = Question(request.transactional_id, *producer, where, adds)
    waiting = partition.verifications
    while not partition.log.producers.has_open_transaction(*producer):
        partition.log.producers.check_not_fenced(*producer)
        answered: asyncio.Future[tuple[ErrorCode, int]] = asyncio.get_running_loop().create_future()

        def resume(
            code: ErrorCode, answered: "asyncio.Future[tuple[ErrorCode, int]]" = answered
        ) -> None:
            answered.set_result((code, waiting.ends))

        waiting.wait(*producer, NO_SEQUENCE, partial(broker.verifier.start, question), resume)
        code, ends = await answered
        if code is not ErrorCode.none:
            raise KafkaError(_for_client(code, version))
        if ends == waiting.ends:
            return  # no marker was written since the coordinator answered


def _for_client(code: ErrorCode, version: int) -> ErrorCode:
    """The error as a code of group coordinators, such as COORDINATOR_LOAD_IN_PROGRESS."""
    sent = for_client(
        code, knows_abortable=version >= ABORTABLE_SINCE, knows_concurrent=version >= 5
    )
    if sent is ErrorCode.not_enough_replicas:
        return ErrorCode.coordinator_load_in_progress
    if sent is ErrorCode.not_leader_or_follower:
        return ErrorCode.not_coordinator
    return sent
