"""ConsumerGroupDescribe: a group and its members, as Kafka shows them."""

from odradek_broker.group.consumer.group import ConsumerGroup, plain
from odradek_broker.group.consumer.member import ConsumerGroupMember
from odradek_broker.group.describing import NOT_ASKED_FOR, assignment
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


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
        assignment=assignment(plain(member.assigned), image),
        target_assignment=assignment(group.target_of(member.member_id), image),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )
