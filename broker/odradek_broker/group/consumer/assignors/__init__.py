"""The coordinator's assignors, by the names that members and settings call them.

An assignor gets what each member subscribes to and was to have, and the number of partitions
of each topic; it gives each member what it shall have. Racks are not looked at, as in Kafka 4.3.
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
