"""The input of an assignor about one member."""

from typing import NamedTuple

from odradek_broker.group.consumer.member import NO_PARTITIONS, Partitions
from odradek_protocol.ids import TopicId


class MemberSpec(NamedTuple):
    topics: frozenset[TopicId]  # existing topics that it subscribes to
    target: Partitions = NO_PARTITIONS  # its previous target
    instance_id: str | None = None
