"""Metadata (3), v0–13: brokers, topics, and which broker leads which partition.

A request names topics or (v12+) topic ids; if it has an id, names are ignored, as in Kafka. A topic
that does not exist is created if both the client and `auto.create.topics.enable` allow it, and is
part of the response (Kafka answers UNKNOWN_TOPIC_OR_PARTITION, and the client asks again). A topic
that the controller refuses to create is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka, so that clients
ask again (more brokers may register by then); the reason is in the broker's log. The controller in
the response is the active one; every broker forwards to it.

A topic is encoded once for all clients that ask in the same way (`metadata_cache.py`). Topics that
are not encoded yet are encoded in slices, with other work of the event loop in between, and for one
large response at a time.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from odradek_broker.controller.topic_names import validate_topic_name
from odradek_broker.coordinator.internal_topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
    internal_topic,
)
from odradek_broker.handlers import create_topics
from odradek_broker.handlers.authorization import cluster_operations, operations_of
from odradek_broker.handlers.cluster_view import (
    OPERATIONS_NOT_ASKED,
    ClusterView,
    is_internal,
)
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.internal_topics import as_request
from odradek_broker.handlers.metadata_access import MetadataAccess
from odradek_broker.handlers.metadata_cache import Shape
from odradek_broker.metadata.image import PartitionRegistration, TopicImage
from odradek_broker.runtime import clock
from odradek_broker.runtime.rate_limited_log import RateLimitedLog
from odradek_protocol.acl_codes import AclResource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import TopicId
from odradek_protocol.messages.api import encode_response_item
from odradek_protocol.messages.struct import EncodedItems, Struct

API_KEY = 3
VERSIONS = range(0, 14)

IDS_SINCE = 12
LISTENER_NOT_FOUND_SINCE = 6
WITHOUT_OPERATIONS = (ErrorCode.unknown_topic_id, ErrorCode.topic_authorization_failed)
CREATE_TIMEOUT_MS = 5000
# Time of a slice of encoding; partitions to encode before the clock is read again (1 ms).
SLICE_NS = 5_000_000
PARTITIONS_PER_STEP = 50
# A response that has to encode more partitions than this waits for other large ones, which will
# probably have encoded the same partitions.
LARGE_PARTITIONS = 500

limited = RateLimitedLog(logging.getLogger(__name__))


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    asked = request.topics
    if ctx.api_version == 0 and not asked:
        asked = None  # in v0 an empty list asks for all topics
    if asked is not None and _malformed(ctx, asked):
        return _refused(asked)
    access = MetadataAccess(ctx) if ctx.broker.authorizer is not None else None
    answers: list[Struct | TopicImage]
    if asked is None:
        view = ClusterView(ctx)
        answers = [*view.image.topics.values()]
        if access is not None:
            answers = access.describable(view.image.topics.values())
    elif any(topic.topic_id is not None for topic in asked):
        view = ClusterView(ctx)
        answers = [
            _topic_by_id(view, topic.topic_id) for topic in asked if topic.topic_id is not None
        ]
        if access is not None:
            answers = access.by_id(answers)
    else:
        names = dict.fromkeys(topic.name for topic in asked)
        hidden: list[Struct] = []
        if access is not None:
            names, hidden = access.by_name(names, creates=_creates(ctx, request))
        await _create_missing(ctx, request, names)
        view = ClusterView(ctx)
        answers = [*(_topic_by_name(view, name) for name in names), *hidden]
    operations = bool(request.include_topic_authorized_operations)
    return _response(ctx, view, await _encoded(ctx, view, answers, operations), request)


async def _encoded(
    ctx: RequestContext, view: ClusterView, topics: Sequence[Struct | TopicImage], operations: bool
) -> EncodedItems:
    """Each topic of the response, encoded: a topic that exists, or an error."""
    cache = ctx.broker.metadata_cache
    shape = Shape(ctx.api_version, ctx.listener, operations)
    # The authorized operations differ by client, so such an encoding is not shared.
    shared = ctx.broker.authorizer is None or not operations
    known = cache.encoded(view.image, shape) if shared else {}
    missing = [t for t in topics if isinstance(t, TopicImage) and t not in known]
    fresh: dict[TopicImage, bytes] = {}
    if sum(len(topic.partitions) for topic in missing) > LARGE_PARTITIONS:
        async with cache.large:
            known = cache.encoded(view.image, shape) if shared else {}
            missing = [topic for topic in missing if topic not in known]
            await _encode(ctx, view, shape, missing, fresh)
    elif missing:
        await _encode(ctx, view, shape, missing, fresh)
    found = []
    for topic in topics:
        if isinstance(topic, TopicImage):
            data = fresh.get(topic) or known.get(topic)
            if data is None:  # dropped from the cache while others were encoded
                data = await _encode_topic(ctx, view, shape, topic, clock.now_ns())
            found.append(data)
        else:
            if operations and topic.error_code not in WITHOUT_OPERATIONS:
                topic.topic_authorized_operations = operations_of(
                    ctx, AclResource.TOPIC, topic.name
                )
            found.append(encode_response_item(API_KEY, ctx.api_version, "topics", topic))
    return EncodedItems(found)


async def _encode(
    ctx: RequestContext,
    view: ClusterView,
    shape: Shape,
    topics: Iterable[TopicImage],
    found: dict[TopicImage, bytes],
) -> None:
    began_ns = clock.now_ns()
    for topic in topics:
        data = found[topic] = await _encode_topic(ctx, view, shape, topic, began_ns)
        if ctx.broker.authorizer is None or not shape.operations:
            ctx.broker.metadata_cache.add(view.image, shape, topic, data)
        if clock.now_ns() - began_ns > SLICE_NS:
            await asyncio.sleep(0)
            began_ns = clock.now_ns()


async def _encode_topic(
    ctx: RequestContext, view: ClusterView, shape: Shape, topic: TopicImage, began_ns: int
) -> bytes:
    partitions: list[bytes] = []
    for index, partition in topic.partitions.items():
        answer = _partition(ctx, view, index, partition)
        partitions.append(
            encode_response_item(API_KEY, ctx.api_version, "topics.partitions", answer)
        )
        if len(partitions) % PARTITIONS_PER_STEP == 0 and clock.now_ns() - began_ns > SLICE_NS:
            await asyncio.sleep(0)
            began_ns = clock.now_ns()
    answer = Struct(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=EncodedItems(partitions),
    )
    if shape.operations:
        answer.topic_authorized_operations = operations_of(ctx, AclResource.TOPIC, topic.name)
    return encode_response_item(API_KEY, ctx.api_version, "topics", answer)


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


async def _create_missing(ctx: RequestContext, request: Struct, names: Iterable[str]) -> None:
    """Creates missing topics where that is allowed, and logs the errors of those that failed."""
    existing = ctx.broker.controller.image.topics
    missing = [name for name in names if name not in existing and _valid(name)]
    if not missing or not _creates(ctx, request):
        return
    defaults = {"num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
    image, settings = ctx.broker.metadata.image, ctx.broker.settings
    topics = [
        as_request(internal_topic(name, settings, image))
        if name in (OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC)
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
        _log_refusal(missing, error.code, error.message)
        return
    exists = ErrorCode.topic_already_exists  # another client was faster
    created = []
    for topic in answer.topics:
        if topic.error_code in (ErrorCode.none, exists):
            created.append(topic.name)
        else:
            _log_refusal([topic.name], topic.error_code, topic.error_message)
    await create_topics.until_known(ctx, created)


def _log_refusal(topics: Sequence[str], code: ErrorCode, message: str | None) -> None:
    # Clients ask again several times a second.
    limited.warning(
        code.name,
        clock.now_ns() / 1_000_000,
        "auto.create.topics.enable: topics %s were not created: %s %s",
        ", ".join(topics),
        code.name,
        message or "",
    )


def _creates(ctx: RequestContext, request: Struct) -> bool:
    wanted = request.allow_auto_topic_creation or ctx.api_version < 4
    return bool(wanted) and ctx.broker.settings.bool("auto.create.topics.enable")


def _valid(name: str) -> bool:
    try:
        validate_topic_name(name)
    except KafkaError:
        return False
    return True


def _topic_by_name(view: ClusterView, name: str) -> Struct | TopicImage:
    topic = view.image.topics.get(name)
    if topic is not None:
        return topic
    valid = _valid(name)
    code = ErrorCode.unknown_topic_or_partition if valid else ErrorCode.invalid_topic_exception
    return Struct(error_code=code, name=name, is_internal=is_internal(name), partitions=[])


def _topic_by_id(view: ClusterView, topic_id: TopicId) -> Struct | TopicImage:
    topic = view.image.topics_by_id.get(topic_id)
    if topic is not None:
        return topic
    return Struct(
        error_code=ErrorCode.unknown_topic_id, name=None, topic_id=topic_id, partitions=[]
    )


def _partition(
    ctx: RequestContext, view: ClusterView, index: int, partition: PartitionRegistration
) -> Struct:
    error = view.leader_error(partition)
    if error is ErrorCode.listener_not_found and ctx.api_version < LISTENER_NOT_FOUND_SINCE:
        error = ErrorCode.leader_not_available
    return Struct(
        error_code=error,
        partition_index=index,
        leader_id=-1 if error else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=view.offline_replicas(partition),
    )


def _response(
    ctx: RequestContext, view: ClusterView, topics: EncodedItems, request: Struct
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
        operations = cluster_operations(ctx)
    return Struct(
        brokers=brokers,
        cluster_id=ctx.broker.cluster_id,
        controller_id=view.controller_id,
        topics=topics,
        cluster_authorized_operations=operations,
        error_code=ErrorCode.none,
    )
