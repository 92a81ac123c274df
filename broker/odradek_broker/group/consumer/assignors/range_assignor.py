"""range: each topic is divided into consecutive ranges, one per member that subscribes to it.

Members are ordered by instance id, those without one after them by member id. So topics with the
same number of partitions and the same subscribers are co-partitioned: the member with partition 2
of one has partition 2 of the others. Example: 3 partitions of t and u, members a and b: a has
t0 t1 u0 u1, b has t2 u2. The previous assignment does not matter.
"""

from collections.abc import Mapping

from odradek_broker.group.consumer.assignors.spec import MemberSpec
from odradek_broker.group.consumer.member import Partitions
from odradek_protocol.ids import TopicId


def assign(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[TopicId, int]
) -> dict[str, Partitions]:
    def order(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or member_id

    subscribers: dict[TopicId, list[str]] = {}
    for member_id in sorted(members, key=order):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    assigned: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, member_ids in subscribers.items():
        quota, extra = divmod(partition_counts[topic_id], len(member_ids))
        start = 0
        for i, member_id in enumerate(member_ids):
            end = start + quota + (i < extra)
            if end > start:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)
