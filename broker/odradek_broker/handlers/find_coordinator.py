"""FindCoordinator (10), v0–6: which broker coordinates a group or a transactional id.

That is the leader of the key's partition of `__consumer_offsets` or `__transaction_state`, which
are created when the first key is asked for. Until there is a leader: COORDINATOR_NOT_AVAILABLE,
which makes clients ask again. Share groups and unknown key types are refused as Apache Kafka
refuses them.
"""

from typing import Any

from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.coordinator.internal_topics import (
    OFFSETS_TOPIC,
    TRANSACTION_TOPIC,
    InternalTopic,
    internal_topic,
)
from odradek_broker.handlers import create_topics
from odradek_broker.handlers.cluster_view import ClusterView
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.forwarding import to_controller
from odradek_broker.handlers.messages import MALFORMED_REQUEST
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.wire.struct import Struct

API_KEY = 10
VERSIONS = range(0, 7)

GROUP, TRANSACTION, SHARE = 0, 1, 2
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_TOPIC}
BATCHED_SINCE = 4
CREATE_TIMEOUT_MS = 5000


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    batched = ctx.api_version >= BATCHED_SINCE
    keys = request.coordinator_keys if batched else [request.key]
    topic = TOPICS.get(request.key_type)
    if topic is None:
        message = "" if request.key_type == SHARE else MALFORMED_REQUEST
        found = [_nowhere(ErrorCode.invalid_request, message) for _ in keys]
    else:
        if keys and topic not in ctx.broker.metadata.image.topics:
            await _create(ctx, topic)
        view = ClusterView(ctx)
        found = [_find(view, topic, key) for key in keys]
    if not batched:
        return Struct(**found[0])
    return Struct(
        coordinators=[Struct(key=key, **where) for key, where in zip(keys, found, strict=True)]
    )


def _find(view: ClusterView, name: str, key: str) -> dict[str, Any]:
    topic = view.image.topics.get(name)
    message = "The coordinator is not available."
    if topic is None:
        return _nowhere(ErrorCode.coordinator_not_available, message)
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    if view.leader_error(partition) is not ErrorCode.none:
        return _nowhere(ErrorCode.coordinator_not_available, message)
    leader = view.image.brokers[partition.leader]
    endpoint = view.endpoint(leader)
    return {
        "node_id": leader.id,
        "host": endpoint.host,
        "port": endpoint.port,
        "error_code": ErrorCode.none,
        "error_message": "",
    }


def _nowhere(code: ErrorCode, message: str) -> dict[str, Any]:
    return {"node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}


async def _create(ctx: RequestContext, name: str) -> None:
    """Two clients may be first at the same time: then one of them hears that it exists."""
    topic: InternalTopic = internal_topic(name, ctx.broker.settings, ctx.broker.metadata.image)
    wanted = Struct(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[],
        configs=[Struct(name=key, value=value) for key, value in topic.configs.items()],
    )
    try:
        await to_controller(
            ctx,
            Struct(topics=[wanted], timeout=CREATE_TIMEOUT_MS, validate_only=False),
            ctx.broker.controller.create_topics,
            api_key=create_topics.API_KEY,
            version=create_topics.VERSIONS[-1],
        )
    except KafkaError:
        return  # the client comes again
    await create_topics.until_known(ctx, [name])
