"""Metadata (3), v0–13: brokers, topics, and which broker leads which partition.

Topics are asked for by name or (v12+) by id; if any id is given, names are not looked at, as
in Kafka. A topic that does not exist is created if client and `auto.create.topics.enable` agree,
and is in the answer already (Kafka answers UNKNOWN_TOPIC_OR_PARTITION and lets the client ask
again). The controller that clients see is the active one; any broker forwards to it.
"""

from collections.abc import Iterable

from odradek_broker.controller.topic_names import validate_topic_name
from odradek_broker.coordinator.internal_topics import (
    OFFSETS_TOPIC,
    TRANSACTION_TOPIC,
    internal_topic,
)
from odradek_broker.handlers import create_topics
from odradek_broker.handlers.cluster_view import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
    ClusterView,
    is_internal,
)
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.internal_topics import as_request
from odradek_broker.metadata.image import TopicImage
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.model.ids import TopicId
from odradek_broker.wire.struct import Struct

API_KEY = 3
VERSIONS = range(0, 14)

IDS_SINCE = 12
LISTENER_NOT_FOUND_SINCE = 6
CREATE_TIMEOUT_MS = 5000


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    asked = request.topics
    if ctx.api_version == 0 and not asked:
        asked = None  # v0 has no other way to ask for all
    if asked is not None and _malformed(ctx, asked):
        return _refused(asked)
    if asked is None:
        view = ClusterView(ctx)
        topics = [_topic(ctx, view, topic) for topic in view.image.topics.values()]
    elif any(topic.topic_id is not None for topic in asked):
        view = ClusterView(ctx)
        topics = [
            _topic_by_id(ctx, view, topic.topic_id) for topic in asked if topic.topic_id is not None
        ]
    else:
        names = dict.fromkeys(topic.name for topic in asked)
        refused = await _create_missing(ctx, request, names)
        view = ClusterView(ctx)
        topics = [_topic_by_name(ctx, view, name, refused) for name in names]
    if request.include_topic_authorized_operations:
        for answer in topics:
            if answer.error_code is not ErrorCode.unknown_topic_id:
                answer.topic_authorized_operations = TOPIC_OPERATIONS
    return _response(ctx, view, topics, request)


def _malformed(ctx: RequestContext, asked: Iterable[Struct]) -> bool:
    return any(
        (topic.topic_id is not None and ctx.api_version < IDS_SINCE)
        or (topic.topic_id is None and topic.name is None)
        for topic in asked
    )


def _refused(asked: Iterable[Struct]) -> Struct:
    return Struct(
        brokers=[],
        cluster_id=None,
        controller_id=-1,
        error_code=ErrorCode.invalid_request,
        topics=[
            Struct(
                error_code=ErrorCode.invalid_request,
                name=topic.name or "",
                topic_id=topic.topic_id,
                partitions=[],
            )
            for topic in asked
        ],
    )


async def _create_missing(
    ctx: RequestContext, request: Struct, names: Iterable[str]
) -> dict[str, ErrorCode]:
    """Creates what is missing and may be created; tells why some could not be."""
    existing = ctx.broker.controller.image.topics
    missing = [name for name in names if name not in existing and _valid(name)]
    wanted = request.allow_auto_topic_creation or ctx.api_version < 4
    if not missing or not wanted or not ctx.broker.settings.bool("auto.create.topics.enable"):
        return {}
    defaults = {"num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
    image, settings = ctx.broker.metadata.image, ctx.broker.settings
    topics = [
        as_request(internal_topic(name, settings, image))
        if name in (OFFSETS_TOPIC, TRANSACTION_TOPIC)
        else Struct(name=name, **defaults)
        for name in missing
    ]
    try:
        answer = await to_controller(
            ctx,
            Struct(topics=topics, timeout=CREATE_TIMEOUT_MS, validate_only=False),
            ctx.broker.controller.create_topics,
            api_key=create_topics.API_KEY,
            version=create_topics.VERSIONS[-1],
        )
    except KafkaError as error:
        return dict.fromkeys(missing, error.code)
    exists = ErrorCode.topic_already_exists  # another client was faster
    refused = {
        topic.name: topic.error_code
        for topic in answer.topics
        if topic.error_code not in (ErrorCode.none, exists)
    }
    await create_topics.until_known(ctx, [name for name in missing if name not in refused])
    return refused


def _valid(name: str) -> bool:
    try:
        validate_topic_name(name)
    except KafkaError:
        return False
    return True


def _topic_by_name(
    ctx: RequestContext, view: ClusterView, name: str, refused: dict[str, ErrorCode]
) -> Struct:
    topic = view.image.topics.get(name)
    if topic is not None:
        return _topic(ctx, view, topic)
    code = refused.get(name, ErrorCode.unknown_topic_or_partition)
    if not _valid(name):
        code = ErrorCode.invalid_topic_exception
    return Struct(error_code=code, name=name, is_internal=is_internal(name), partitions=[])


def _topic_by_id(ctx: RequestContext, view: ClusterView, topic_id: TopicId) -> Struct:
    topic = view.image.topics_by_id.get(topic_id)
    if topic is not None:
        return _topic(ctx, view, topic)
    return Struct(
        error_code=ErrorCode.unknown_topic_id, name=None, topic_id=topic_id, partitions=[]
    )


def _topic(ctx: RequestContext, view: ClusterView, topic: TopicImage) -> Struct:
    return Struct(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=_partitions(ctx, view, topic),
    )


def _partitions(ctx: RequestContext, view: ClusterView, topic: TopicImage) -> list[Struct]:
    answers = []
    for index, partition in topic.partitions.items():
        error = view.leader_error(partition)
        if error is ErrorCode.listener_not_found and ctx.api_version < LISTENER_NOT_FOUND_SINCE:
            error = ErrorCode.leader_not_available
        answers.append(
            Struct(
                error_code=error,
                partition_index=index,
                leader_id=-1 if error else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=view.offline_replicas(partition),
            )
        )
    return answers


def _response(
    ctx: RequestContext, view: ClusterView, topics: list[Struct], request: Struct
) -> Struct:
    brokers = []
    for broker in view.brokers():
        if not broker.fenced:
            endpoint = view.endpoint(broker)
            brokers.append(
                Struct(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    operations = OPERATIONS_NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = CLUSTER_OPERATIONS
    return Struct(
        brokers=brokers,
        cluster_id=ctx.broker.cluster_id,
        controller_id=view.controller_id,
        topics=topics,
        cluster_authorized_operations=operations,
        error_code=ErrorCode.none,
    )
