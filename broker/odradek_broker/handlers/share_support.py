"""Parts that ShareFetch and ShareAcknowledge share: acknowledgements, topics, responses."""

import asyncio
from collections.abc import Iterable
from uuid import UUID

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.leader_hints import LEADER_ERRORS, current_leader, endpoints
from odradek_broker.handlers.topic_access import TopicAccess
from odradek_broker.metadata.features import SHARE_VERSION
from odradek_broker.share.sessions import ShareSession
from odradek_broker.share.share_partition import Acknowledged, check_types
from odradek_broker.share.state import Key
from odradek_protocol.acl_codes import AclOperation
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct
from odradek_protocol.share_codes import AcknowledgeType

Errors = dict[Key, KafkaError]
NO_LEADER_HINT = Struct(leader_id=0, leader_epoch=0)
NO_ERROR = KafkaError(ErrorCode.none)


def check_enabled(ctx: RequestContext) -> None:
    """The cluster has share groups: feature share.version, which an operator may set to 0."""
    if ctx.broker.metadata.image.features.get(SHARE_VERSION, 0) < 1:
        raise KafkaError(ErrorCode.unsupported_version)


def keys_of(group_id: str, topics: Iterable[Struct]) -> list[Key]:
    return [
        Key(group_id, topic.topic_id or UUID(int=0), one.partition_index)
        for topic in topics
        for one in topic.partitions
    ]


async def acknowledge(ctx: RequestContext, request: Struct, session: ShareSession) -> Errors:
    """Takes the acknowledgements of a request; per partition an error, or NO_ERROR."""
    access = _access(ctx)
    renews = getattr(request, "is_renew_ack", False)
    results: Errors = {}
    waiting = []
    for topic in request.topics:
        for one in topic.partitions:
            if not one.acknowledgement_batches:
                continue
            key = Key(request.group_id, topic.topic_id or UUID(int=0), one.partition_index)
            try:
                check_readable(ctx, key, access)
                batches = _batches(one.acknowledgement_batches, renews=renews)
            except KafkaError as error:
                results[key] = error
                continue
            results[key] = NO_ERROR
            waiting.append(_acknowledge_one(ctx, key, session.member_id, batches, results))
    await asyncio.gather(*waiting)
    return results


async def _acknowledge_one(
    ctx: RequestContext, key: Key, member_id: str, batches: list[Acknowledged], results: Errors
) -> None:
    try:
        await ctx.broker.shares.acknowledge(key, member_id, batches)
    except KafkaError as error:
        results[key] = error


def _batches(asked: Iterable[Struct], *, renews: bool) -> list[Acknowledged]:
    batches: list[Acknowledged] = []
    for one in asked:
        types = one.acknowledge_types
        # The same offset twice is found where the records are known, as in Kafka.
        ascends = not batches or one.first_offset >= batches[-1].last
        renewed = AcknowledgeType.RENEW in types
        well_formed = check_types(one.first_offset, one.last_offset, types)
        if not well_formed or not ascends or (renewed and not renews):
            raise KafkaError(ErrorCode.invalid_request)
        batches.append(Acknowledged(one.first_offset, one.last_offset, types))
    return batches


def _access(ctx: RequestContext) -> TopicAccess | None:
    return TopicAccess(ctx, AclOperation.READ) if ctx.broker.authorizer is not None else None


def readable(ctx: RequestContext, keys: Iterable[Key]) -> tuple[list[Key], Errors]:
    """The partitions that the client may read and that exist, and the errors of the others."""
    access = _access(ctx)
    rest: list[Key] = []
    errors: Errors = {}
    for key in keys:
        try:
            check_readable(ctx, key, access)
            rest.append(key)
        except KafkaError as error:
            errors[key] = error
    return rest, errors


def check_readable(ctx: RequestContext, key: Key, access: TopicAccess | None) -> None:
    topic = key.topic_id.bytes
    known = ctx.broker.metadata.image.topics_by_id.get(key.topic_id)
    if known is None:
        raise KafkaError(ErrorCode.unknown_topic_id)
    if access is not None and not access.allows(topic, key.partition):
        raise KafkaError(ErrorCode.topic_authorization_failed)
    if key.partition not in known.partitions:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)


def leader_of(ctx: RequestContext, key: Key, code: ErrorCode) -> Struct:
    hint = None
    if code in LEADER_ERRORS:
        hint = current_leader(ctx, key.topic_id.bytes, key.partition)
    return Struct(leader_id=hint[0], leader_epoch=hint[1]) if hint else NO_LEADER_HINT


def node_endpoints(ctx: RequestContext, keys: Iterable[Key]) -> list[Struct]:
    hints = [current_leader(ctx, key.topic_id.bytes, key.partition) for key in keys]
    return [
        Struct(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
        for one in endpoints(ctx, hints)
    ]


def by_topic(partitions: dict[Key, Struct]) -> list[Struct]:
    topics: dict[UUID, list[Struct]] = {}
    for key, answer in partitions.items():
        answer.partition_index = key.partition
        topics.setdefault(key.topic_id, []).append(answer)
    return [Struct(topic_id=topic, partitions=answers) for topic, answers in topics.items()]


def refusal(error: KafkaError) -> Struct:
    return Struct(
        error_code=error.code,
        error_message=error.message or None,
        acquisition_lock_timeout=0,
        responses=[],
        node_endpoints=[],
    )
