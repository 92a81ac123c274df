"""AddPartitionsToTxn (24), v0–5: adds partitions to a transaction that will write to them.

    v0–3  from a client, for one transaction. Internal topics: TOPIC_AUTHORIZATION_FAILED.
    v4–5  between brokers, for many transactions. With verify_only nothing is added; a partition
          that is not part of the transaction is TRANSACTION_ABORTABLE. v5 bumps the producer epoch
          with every transaction.

All partitions of a transaction or none: if some are unknown or may not be written, the others are
OPERATION_NOT_ATTEMPTED.

PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before v2.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping

from odradek_broker.controller.topic_names import INTERNAL_TOPICS
from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.txn.service import TransactionCoordinator
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.struct import Struct

API_KEY = 24
VERSIONS = range(0, 6)

BATCHED_SINCE = 4
FENCED_SINCE = 2
EPOCH_BUMP_SINCE = 5

Results = Mapping[TopicPartition, ErrorCode]


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    if ctx.api_version >= BATCHED_SINCE:
        broker = ctx.broker
        return await batched(broker.transactions, broker.metadata, request, ctx.api_version)
    partitions = partitions_of(request.v3_and_below_topics)
    results = await _add_for_client(ctx, request, partitions)
    return Struct(results_by_topic_v3_and_below=by_topic(results))


async def batched(
    transactions: TransactionCoordinator,
    metadata: MetadataPublisher,
    request: Struct,
    version: int,
) -> Struct:
    """The form between brokers; this broker calls it directly for its own partitions."""
    answers = await asyncio.gather(
        *(_transaction(transactions, metadata, asked, version) for asked in request.transactions)
    )
    return Struct(error_code=ErrorCode.none, results_by_transaction=answers)


async def _transaction(
    transactions: TransactionCoordinator,
    metadata: MetadataPublisher,
    asked: Struct,
    version: int,
) -> Struct:
    partitions = partitions_of(asked.topics)
    producer = asked.producer_id, asked.producer_epoch
    results = if_refused(metadata, partitions)
    if results is not None:
        return Struct(transactional_id=asked.transactional_id, topic_results=by_topic(results))
    try:
        if not asked.transactional_id:
            raise KafkaError(ErrorCode.invalid_request)
        if asked.verify_only:
            results = await transactions.verify_partitions(
                asked.transactional_id, *producer, partitions
            )
        else:
            await transactions.add_partitions(
                asked.transactional_id,
                *producer,
                partitions,
                version=2 if version >= EPOCH_BUMP_SINCE else 0,
            )
            results = dict.fromkeys(partitions, ErrorCode.none)
    except KafkaError as error:
        results = dict.fromkeys(partitions, error.code)
    return Struct(transactional_id=asked.transactional_id, topic_results=by_topic(results))


async def _add_for_client(
    ctx: RequestContext, request: Struct, partitions: list[TopicPartition]
) -> Results:
    if (results := if_refused(ctx.broker.metadata, partitions, INTERNAL_TOPICS)) is not None:
        return results
    code = ErrorCode.none
    try:
        if not request.v3_and_below_transactional_id:
            raise KafkaError(ErrorCode.invalid_request)
        await ctx.broker.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
            version=0,
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.producer_fenced and ctx.api_version < FENCED_SINCE:
            code = ErrorCode.invalid_producer_epoch
    return dict.fromkeys(partitions, code)


def if_refused(
    metadata: MetadataPublisher,
    partitions: list[TopicPartition],
    denied: Collection[str] = (),
) -> Results | None:
    """The results if one of the partitions does not exist or is of a topic that the client may not
    write (`denied`): then none is added."""
    topics = metadata.image.topics
    refused: dict[TopicPartition, ErrorCode] = {}
    for partition in partitions:
        if partition.topic in denied:
            refused[partition] = ErrorCode.topic_authorization_failed
        elif (
            partition.topic not in topics
            or partition.partition not in topics[partition.topic].partitions
        ):
            refused[partition] = ErrorCode.unknown_topic_or_partition
    if not refused:
        return None
    return {one: refused.get(one, ErrorCode.operation_not_attempted) for one in partitions}


def partitions_of(topics: Iterable[Struct]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def by_topic(results: Results) -> list[Struct]:
    topics: dict[str, list[Struct]] = {}
    for (topic, index), code in results.items():
        result = Struct(partition_index=index, partition_error_code=code)
        topics.setdefault(topic, []).append(result)
    return [
        Struct(name=name, results_by_partition=partitions) for name, partitions in topics.items()
    ]
