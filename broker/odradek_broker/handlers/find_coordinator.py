"""FindCoordinator (10), v0–6: which broker coordinates a group or a transactional id.

It is the leader of the key's partition of `__consumer_offsets`, `__transaction_state` or
`__share_group_state`; the first request creates the topic. COORDINATOR_NOT_AVAILABLE while that
partition has no leader, or if the topic cannot be created. A broker that is isolated from the
controller does not name itself, but closes the connection. Unknown key types are refused as Apache
Kafka refuses them, and so are keys of share partitions (v6+) that are not
`group:topic id:partition`.
"""

from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.coordinator.internal_topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
)
from odradek_broker.handlers import internal_topics
from odradek_broker.handlers.cluster_view import ClusterView
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.messages import MALFORMED_REQUEST
from odradek_broker.share.state import parse_key
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 10
VERSIONS = range(0, 7)

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCHED_SINCE = 4
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_TOPIC, SHARE: SHARE_STATE_TOPIC}
SHARE_SINCE = 6
NOT_AVAILABLE = "The coordinator is not available."


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    batched = ctx.api_version >= BATCHED_SINCE
    keys = request.coordinator_keys if batched else [request.key]
    topic = TOPICS.get(request.key_type)
    if topic is None or (request.key_type == SHARE and ctx.api_version < SHARE_SINCE):
        message = "" if batched and request.key_type == SHARE else MALFORMED_REQUEST
        found = [_nowhere(ErrorCode.invalid_request, message) for _ in keys]
    else:
        try:
            valid = {k for k in keys if request.key_type != SHARE or _is_share_partition(k)}
            if valid:
                await internal_topics.ensure(ctx, topic)
            view = ClusterView(ctx)
            found = [
                _coordinator(view, topic, key)
                if key in valid
                else _nowhere(ErrorCode.invalid_request, "")
                for key in keys
            ]
            own = any(answer.node_id == ctx.broker.node_id for answer in found)
            if own and ctx.broker.partitions.isolation.leads_isolated:
                ctx.disconnect("this broker is isolated from the controller: ask another one")
        except KafkaError as error:
            found = [_nowhere(error.code, error.message or NOT_AVAILABLE) for _ in keys]
    if not batched:
        if found[0].error_code is ErrorCode.none:
            found[0].error_message = "NONE"  # the name of Kafka's "no error"
        return found[0]
    for key, answer in zip(keys, found, strict=True):
        answer.key = key
    return Struct(coordinators=found)


def _coordinator(view: ClusterView, topic: str, key: str) -> Struct:
    image = view.image.topics.get(topic)
    if image is None:
        return _nowhere(ErrorCode.coordinator_not_available, NOT_AVAILABLE)
    partition = image.partitions[partition_for(key, len(image.partitions))]
    if view.leader_error(partition) is not ErrorCode.none:
        return _nowhere(ErrorCode.coordinator_not_available, NOT_AVAILABLE)
    endpoint = view.endpoint(view.image.brokers[partition.leader])
    return Struct(
        node_id=partition.leader,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.none,
        error_message="",
    )


def _is_share_partition(key: str) -> bool:
    try:
        parse_key(key)
    except KafkaError:
        return False
    return True


def _nowhere(code: ErrorCode, message: str) -> Struct:
    return Struct(node_id=-1, host="", port=-1, error_code=code, error_message=message)
