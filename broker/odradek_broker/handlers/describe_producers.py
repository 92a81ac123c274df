"""DescribeProducers (61), v0: the producers in a replica's log, and where their open transactions
began.

Any replica answers, the leader or a follower, as in Apache Kafka: `kafka-transactions
find-hanging --broker-id N` asks one broker about all replicas that it hosts.

    no such topic                             UNKNOWN_TOPIC_OR_PARTITION with a message
    no such partition                         UNKNOWN_TOPIC_OR_PARTITION without one
    hosted by other brokers only              NOT_LEADER_OR_FOLLOWER
    hosted here, in an offline directory      KAFKA_STORAGE_ERROR
"""

from odradek_broker.controller.topic_names import NOT_HOSTED, validate_topic_name
from odradek_broker.handlers.context import RequestContext
from odradek_broker.log.producer_state import ProducerEntry
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 61
VERSIONS = range(0, 1)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    return Struct(
        topics=[
            Struct(
                name=topic.name,
                partitions=[_describe(ctx, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(ctx: RequestContext, topic: str, index: int) -> Struct:
    try:
        validate_topic_name(topic)
        if topic not in ctx.broker.metadata.image.topics:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, NOT_HOSTED)
        partition = ctx.broker.partitions.get(topic, index)
        if partition.log.log_dir.failure is not None:
            raise KafkaError(ErrorCode.kafka_storage_error)
    except KafkaError as error:
        return Struct(
            partition_index=index,
            error_code=error.code,
            error_message=error.message,
            active_producers=[],
        )
    return Struct(
        partition_index=index,
        error_code=ErrorCode.none,
        error_message=None,
        active_producers=[
            _producer(producer_id, entry)
            for producer_id, entry in partition.log.producers.entries.items()
        ],
    )


def _producer(producer_id: int, entry: ProducerEntry) -> Struct:
    return Struct(
        producer_id=producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )
