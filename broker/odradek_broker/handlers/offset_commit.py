"""OffsetCommit (8), v2–10: commits a group's offsets; answered when all in-sync replicas have them.

Topics by name, from v10 on by id. Partitions that do not exist are refused one by one
(UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID); the others are committed.
"""

from typing import Any

from odradek_broker.group.offset_requests import CommitRequest
from odradek_broker.group.records import Key
from odradek_broker.handlers.context import RequestContext
from odradek_broker.metadata.image import MetadataImage, TopicImage
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 8
VERSIONS = range(2, 11)

NOT_FOUND_SINCE = 9  # older clients do not know GROUP_ID_NOT_FOUND
IDS_SINCE = 10

Offset = tuple[Key, int, int, str | None]


async def handle(ctx: RequestContext, request: Struct) -> Struct:
    image = ctx.broker.metadata.image
    offsets, refused = split(image, request.topics, by_id=ctx.api_version >= IDS_SINCE)
    try:
        codes = await ctx.broker.groups.commit(
            CommitRequest(
                group_id=request.group_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation=request.generation_id_or_member_epoch,
                offsets=offsets,
                retention_ms=request.retention_time,
            )
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.group_id_not_found and ctx.api_version < NOT_FOUND_SINCE:
            code = ErrorCode.illegal_generation
        codes = [code] * len(offsets)
    return answer(request.topics, refused, codes)


def split(
    image: MetadataImage, topics: Any, *, by_id: bool = False
) -> tuple[list[Offset], list[ErrorCode | None]]:
    """The offsets of partitions that exist; and per partition of the request, its error if any."""
    offsets: list[Offset] = []
    refused: list[ErrorCode | None] = []
    for topic in topics:
        found: TopicImage | None
        if by_id:
            found = image.topics_by_id.get(topic.topic_id)
            unknown = ErrorCode.unknown_topic_id
        else:
            found = image.topics.get(topic.name)
            unknown = ErrorCode.unknown_topic_or_partition
        for one in topic.partitions:
            if found is None:
                refused.append(unknown)
            elif one.partition_index not in found.partitions:
                refused.append(ErrorCode.unknown_topic_or_partition)
            else:
                refused.append(None)
                key = found.name, one.partition_index
                epoch, metadata = one.committed_leader_epoch, one.committed_metadata
                offsets.append((key, one.committed_offset, epoch, metadata))
    return offsets, refused


def answer(topics: Any, refused: list[ErrorCode | None], codes: list[ErrorCode]) -> Struct:
    """A code per partition, in the order of the request."""
    given, why = iter(codes), iter(refused)
    answers = []
    for topic in topics:
        partitions = []
        for one in topic.partitions:
            code = next(why)
            code = next(given) if code is None else code
            partitions.append(Struct(partition_index=one.partition_index, error_code=code))
        name = {"name": topic.name} if hasattr(topic, "name") else {}
        identity = {"topic_id": topic.topic_id} if hasattr(topic, "topic_id") else {}
        answers.append(Struct(**name, **identity, partitions=partitions))
    return Struct(topics=answers)
