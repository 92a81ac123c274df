"""AlterReplicaLogDirs (34), v1–2: moves replicas of this broker between its log directories.

Answered when the copying has begun; DescribeLogDirs shows the progress. Naming the directory where
the replica is cancels its move. A partition without a replica on this broker is answered with
REPLICA_NOT_AVAILABLE, as in Kafka, and its directory is remembered: if a replica is created later,
its log is created there (`kafka-reassign-partitions` relies on both). If a replica is named with
several directories, the last one counts, as in Kafka.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.struct import Struct

API_KEY = 34
VERSIONS = range(1, 3)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    paths = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, list[Struct]] = {}
    for topic_partition, path in paths.items():
        code = _move(ctx, topic_partition, path)
        answer = Struct(partition_index=topic_partition.partition, error_code=code)
        topics.setdefault(topic_partition.topic, []).append(answer)
    results = [Struct(topic_name=name, partitions=answers) for name, answers in topics.items()]
    return Struct(results=results)


def _move(ctx: RequestContext, topic_partition: TopicPartition, path: str) -> ErrorCode:
    try:
        ctx.broker.partitions.move_replica(topic_partition, path)
    except KafkaError as error:
        if error.code is ErrorCode.not_leader_or_follower:
            return ErrorCode.replica_not_available
        return error.code
    return ErrorCode.none
