"""ConsumerGroupDescribe: a group and its members, as Kafka shows them."""

from odradek_broker.group.consumer.group import ConsumerGroup, plain
from odradek_broker.group.consumer.member import ConsumerGroupMember, Partitions
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
NOT_ASKED_FOR = -(2**31)  # authorized operations


def describe(group: ConsumerGroup, image: MetadataImage, default_assignor: str) -> Struct:
    return Struct(
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[_member(group, member, image) for member in group.members.values()],
        authorized_operations=NOT_ASKED_FOR,
    )


def unknown(
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


def _member(group: ConsumerGroup, member: ConsumerGroupMember, image: MetadataImage) -> Struct:
    return Struct(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex or "",
        assignment=_topics(plain(member.assigned), image),
        target_assignment=_topics(group.target_of(member.member_id), image),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _topics(partitions: Partitions, image: MetadataImage) -> Struct:
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
