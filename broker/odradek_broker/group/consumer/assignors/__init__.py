"""The coordinator's assignors, by the names that members and settings use.

An assignor gets the subscription and the previous target of each member, and the number of
partitions of each topic; it returns the new target of each member. Racks are ignored, as in Kafka
4.3.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from odradek_broker.group.consumer.assignors import range_assignor, uniform
from odradek_broker.group.consumer.assignors.spec import MemberSpec
from odradek_broker.group.consumer.member import Partitions
from odradek_protocol.ids import TopicId

Assign: TypeAlias = Callable[
    [Mapping[str, MemberSpec], Mapping[TopicId, int]], dict[str, Partitions]
]

ASSIGNORS: dict[str, Assign] = {
    "uniform": uniform.assign,
    "range": range_assignor.assign,
}

__all__ = ["ASSIGNORS", "Assign", "MemberSpec"]
