"""DescribeTransactions (65), v0: state, producer and partitions of transactional ids."""

import asyncio

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 65
VERSIONS = range(0, 1)


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    asked = (_describe(ctx, transactional_id) for transactional_id in request.transactional_ids)
    return Struct(transaction_states=await asyncio.gather(*asked))


async def _describe(ctx: RequestContext, transactional_id: str) -> Struct:
    try:
        if not transactional_id:
            raise KafkaError(ErrorCode.invalid_request)
        found = await ctx.broker.transactions.describe(transactional_id)
    except KafkaError as error:
        return Struct(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout=0,
            transaction_start_time=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        topics.setdefault(topic, []).append(index)
    return Struct(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=found.state.kafka_name,
        transaction_timeout=found.timeout_ms,
        transaction_start_time=found.start_timestamp_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[Struct(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )
