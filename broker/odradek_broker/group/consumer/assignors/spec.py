"""What an assignor knows about a member."""

from typing import NamedTuple

from odradek_broker.group.consumer.member import NO_PARTITIONS, Partitions
from odradek_protocol.ids import TopicId


class MemberSpec(NamedTuple):
    topics: frozenset[TopicId]  # that it subscribes to and that exist
    target: Partitions = NO_PARTITIONS  # what it was to have until now
    instance_id: str | None = None
