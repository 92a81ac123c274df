"""OffsetFetch (9), v1–10: committed offsets of one group, from v8 on of several.

Without topics (null, v2+) the response has all offsets of the group. A partition without an offset
has -1 and no error. Topics by name, from v10 on by id. With `require_stable` (v7+) a partition
whose offset is pending in a transaction gets UNSTABLE_OFFSET_COMMIT.
"""

from typing import Any

from odradek_broker.group.offset_requests import FetchedOffset
from odradek_broker.group.records import Key
from odradek_broker.handlers.context import RequestContext
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 9
VERSIONS = range(1, 11)

TOP_ERROR_SINCE = 2
GROUPS_SINCE = 8
IDS_SINCE = 10


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    if ctx.api_version >= GROUPS_SINCE:
        return Struct(groups=[await _group(ctx, one, request) for one in request.groups])
    asked = Struct(
        group_id=request.group_id, topics=request.topics, member_id=None, member_epoch=-1
    )
    found = await _group(ctx, asked, request)
    if found.error_code and ctx.api_version < TOP_ERROR_SINCE:
        topics = [_refused(topic, found.error_code) for topic in request.topics]
        return Struct(topics=topics)
    return Struct(topics=found.topics, error_code=found.error_code)


async def _group(ctx: RequestContext, asked: Struct, request: Struct) -> Struct:
    image = ctx.broker.metadata.image
    by_id = ctx.api_version >= IDS_SINCE
    # topics with their names, in the order of the request
    topics: list[tuple[Struct, str | None]] | None = None
    keys: list[Key] | None = None
    if asked.topics is not None:
        topics = []
        for topic in asked.topics:
            known = image.topics_by_id.get(topic.topic_id) if by_id else None
            topics.append((topic, (known.name if known else None) if by_id else topic.name))
        keys = [
            (name, index)
            for topic, name in topics
            if name is not None
            for index in topic.partition_indexes
        ]
    try:
        found = await ctx.broker.groups.fetch_offsets(
            asked.group_id,
            keys,
            member_id=asked.member_id,
            member_epoch=asked.member_epoch,
            require_stable=request.require_stable,
        )
    except KafkaError as error:
        return Struct(group_id=asked.group_id, topics=[], error_code=error.code)
    if topics is None:
        answers = _all(ctx, found, by_id=by_id)
    else:
        offsets = iter(found)
        answers = [
            _refused(topic, ErrorCode.unknown_topic_id)
            if name is None
            else _topic(topic, [next(offsets) for _ in topic.partition_indexes])
            for topic, name in topics
        ]
    return Struct(group_id=asked.group_id, topics=answers, error_code=ErrorCode.none)


def _all(ctx: RequestContext, found: list[FetchedOffset], *, by_id: bool) -> list[Struct]:
    by_topic: dict[str, list[FetchedOffset]] = {}
    for one in found:
        by_topic.setdefault(one.key[0], []).append(one)
    answers = []
    for name, offsets in by_topic.items():
        topic = Struct(name=name, partitions=[_partition(one) for one in offsets])
        if by_id:
            known = ctx.broker.metadata.image.topics.get(name)
            if known is None:
                continue  # deleted: its id is not known any more
            topic.topic_id = known.id
        answers.append(topic)
    return answers


def _topic(asked: Struct, offsets: list[FetchedOffset]) -> Struct:
    return Struct(**_identity(asked), partitions=[_partition(one) for one in offsets])


def _refused(asked: Struct, error: ErrorCode) -> Struct:
    return Struct(
        **_identity(asked),
        partitions=[
            _partition(FetchedOffset(("", index), None, error)) for index in asked.partition_indexes
        ],
    )


def _identity(topic: Struct) -> dict[str, Any]:
    return {name: value for name, value in topic.__dict__.items() if name in ("name", "topic_id")}


def _partition(found: FetchedOffset) -> Struct:
    value = found.value
    return Struct(
        partition_index=found.key[1],
        committed_offset=value.offset if value else -1,
        committed_leader_epoch=value.leader_epoch if value else -1,
        metadata=value.metadata if value else "",
        error_code=found.error,
    )
