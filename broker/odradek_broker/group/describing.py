"""Parts of the answers of ConsumerGroupDescribe and ShareGroupDescribe that are the same."""

from collections.abc import Collection, Mapping

from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicId
from odradek_protocol.messages.struct import Struct

NOT_ASKED_FOR = -(2**31)  # authorized operations


def undescribed(
    group_id: str, message: str | None, code: ErrorCode = ErrorCode.group_id_not_found
) -> Struct:
    return Struct(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
        authorized_operations=NOT_ASKED_FOR,
    )


def assignment(partitions: Mapping[TopicId, Collection[int]], image: MetadataImage) -> Struct:
    """Deleted topics are left out: their names are unknown."""
    return Struct(
        topic_partitions=[
            Struct(
                topic_id=topic_id,
                topic_name=image.topics_by_id[topic_id].name,
                partitions=sorted(numbers),
            )
            for topic_id, numbers in sorted(partitions.items())
            if topic_id in image.topics_by_id
        ]
    )
