"""uniform: members get the same number of partitions, and keep as many of theirs as possible.

If all members subscribe to the same topics, their numbers differ by at most one, and a partition
moves only if its member has more than its share or has left. If subscriptions differ,
`heterogeneous.py` computes the assignment.
"""

from collections.abc import Mapping
from itertools import chain

from odradek_broker.group.consumer.assignors import heterogeneous
from odradek_broker.group.consumer.assignors.spec import MemberSpec
from odradek_broker.group.consumer.member import Partitions
from odradek_protocol.ids import TopicId

TopicIdPartition = tuple[TopicId, int]


def assign(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[TopicId, int]
) -> dict[str, Partitions]:
    if not members:
        return {}
    subscriptions = {spec.topics for spec in members.values()}
    if len(subscriptions) > 1:
        return heterogeneous.assign(members, partition_counts)
    (topics,) = subscriptions
    return _homogeneous(members, {topic_id: partition_counts[topic_id] for topic_id in topics})


def _homogeneous(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[TopicId, int]
) -> dict[str, Partitions]:
    quota, extra = divmod(sum(partition_counts.values()), len(members))
    taken: set[TopicIdPartition] = set()
    had: dict[str, list[TopicIdPartition]] = {}
    for member_id in sorted(members):
        had[member_id] = heterogeneous.valid(members[member_id], partition_counts, taken)
        taken.update(had[member_id])
    # Members with the most partitions get the larger shares: fewer partitions move.
    order = sorted(members, key=lambda member_id: (-len(had[member_id]), member_id))
    share = {member_id: quota + (i < extra) for i, member_id in enumerate(order)}
    kept = {member_id: had[member_id][: share[member_id]] for member_id in order}
    holders = set(chain.from_iterable(kept.values()))
    free = (
        (topic_id, partition)
        for topic_id in sorted(partition_counts)
        for partition in range(partition_counts[topic_id])
        if (topic_id, partition) not in holders
    )
    for member_id in sorted(members):
        missing = share[member_id] - len(kept[member_id])
        kept[member_id] += [next(free) for _ in range(missing)]
    return {member_id: heterogeneous.by_topic(kept[member_id]) for member_id in members}
