"""The assignor "simple" of share groups: every partition has a member, every member a partition.

Members and partitions are dealt out in turn until both are used up; the shorter side is then
repeated. Example, 2 partitions and 3 members: a → 0, b → 1, c → 0. With 5 partitions and 2 members:
a → 0, 2, 4, b → 1, 3. Members with different subscriptions are dealt each topic for itself.
"""

from collections.abc import Mapping

from odradek_protocol.ids import TopicId

Topics = Mapping[str, tuple[TopicId, frozenset[int]]]  # by name: id, assignable partitions


def assign(
    subscriptions: Mapping[str, frozenset[str]], topics: Topics
) -> dict[str, dict[TopicId, frozenset[int]]]:
    """By member; `subscriptions` has the topic names of each member."""
    targets: dict[str, dict[TopicId, set[int]]] = {member: {} for member in subscriptions}
    members = sorted(subscriptions)
    if len({names.intersection(topics) for names in subscriptions.values()}) <= 1:
        wanted = subscriptions[members[0]].intersection(topics) if members else frozenset()
        _deal(members, sorted(wanted), topics, targets)
    else:
        for name in sorted(topics):
            subscribed = [member for member in members if name in subscriptions[member]]
            _deal(subscribed, [name], topics, targets)
    return {
        member: {topic_id: frozenset(partitions) for topic_id, partitions in target.items()}
        for member, target in targets.items()
    }


def _deal(
    members: list[str],
    names: list[str],
    topics: Topics,
    targets: dict[str, dict[TopicId, set[int]]],
) -> None:
    slots = [
        (topics[name][0], partition) for name in names for partition in sorted(topics[name][1])
    ]
    if not members or not slots:
        return
    for number in range(max(len(members), len(slots))):
        topic_id, partition = slots[number % len(slots)]
        target = targets[members[number % len(members)]]
        target.setdefault(topic_id, set()).add(partition)
