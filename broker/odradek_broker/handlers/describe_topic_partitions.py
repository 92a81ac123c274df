"""DescribeTopicPartitions (75), v0: topics page by page, in the order of their names.

A page has at most `response_partition_limit` partitions (never more than
max.request.partition.size.limit); `next_cursor` is the first partition of the next page. A request
without topics is for all.
"""

from collections.abc import Sequence

from odradek_broker.controller.topic_names import validate_topic_name
from odradek_broker.handlers.cluster_view import (
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
    ClusterView,
    is_internal,
)
from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.image import TopicImage
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 75
VERSIONS = range(0, 1)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    view = ClusterView(ctx)
    names = sorted({topic.name for topic in request.topics} or view.image.topics)
    cursor = request.cursor
    start = 0
    if cursor is not None:
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
            return _refused([topic.name for topic in request.topics])
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            start = cursor.partition_index
    limit = ctx.broker.settings.int("max.request.partition.size.limit")
    room = max(1, min(request.response_partition_limit, limit))
    return _page(view, names, start, room)


def _refused(names: Sequence[str]) -> Struct:
    return Struct(
        topics=[
            Struct(
                error_code=ErrorCode.invalid_request,
                name=name,
                partitions=[],
                topic_authorized_operations=OPERATIONS_NOT_ASKED,
            )
            for name in names
        ],
        next_cursor=None,
    )


def _page(view: ClusterView, names: Sequence[str], start: int, room: int) -> Struct:
    """Partitions from `start` of the first topic on, at most `room` of them."""
    topics: list[Struct] = []
    for name in names:
        if room == 0:
            return Struct(topics=topics, next_cursor=Struct(topic_name=name, partition_index=start))
        topic = view.image.topics.get(name)
        if topic is None:
            topics.append(_missing(name))
            start = 0
            continue
        stop = min(len(topic.partitions), start + room)
        topics.append(_topic(view, topic, range(start, stop)))
        room -= max(0, stop - start)
        if stop < len(topic.partitions):
            return Struct(topics=topics, next_cursor=Struct(topic_name=name, partition_index=stop))
        start = 0
    return Struct(topics=topics, next_cursor=None)


def _missing(name: str) -> Struct:
    code = ErrorCode.unknown_topic_or_partition
    try:
        validate_topic_name(name)
    except KafkaError as error:
        code = error.code
    return Struct(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
        partitions=[],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(view: ClusterView, topic: TopicImage, indexes: range) -> Struct:
    partitions = []
    for index in indexes:
        partition = topic.partitions[index]
        error = view.leader_error(partition)
        partitions.append(
            Struct(
                error_code=error,
                partition_index=index,
                leader_id=-1 if error else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=partition.eligible_leader_replicas,
                last_known_elr=partition.last_known_elr,
                offline_replicas=view.offline_replicas(partition),
            )
        )
    return Struct(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
