"""AddOffsetsToTxn (25), v0–4: announces that the transaction will commit offsets of a group.

Adds the group's partition of `__consumer_offsets` to the transaction. Clients with a producer epoch
per transaction do not send this: TxnOffsetCommit adds the partition.
"""

from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.coordinator.internal_topics import OFFSETS_TOPIC
from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.struct import Struct

API_KEY = 25
VERSIONS = range(0, 5)

FENCED_SINCE = 2


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    try:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.invalid_request)
        await ctx.broker.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [offsets_partition(ctx.broker, request.group_id)],
            version=0,
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.producer_fenced and ctx.api_version < FENCED_SINCE:
            code = ErrorCode.invalid_producer_epoch
        return Struct(error_code=code)
    return Struct(error_code=ErrorCode.none)


def offsets_partition(broker: BrokerContext, group_id: str) -> TopicPartition:
    topic = broker.metadata.image.topics.get(OFFSETS_TOPIC)
    count = len(topic.partitions) if topic else broker.settings.int("offsets.topic.num.partitions")
    return TopicPartition(OFFSETS_TOPIC, partition_for(group_id, count))
