"""The uniform assignor where members subscribe to different topics.

1. Every member keeps the partitions that it had and still subscribes to.
2. Unassigned partitions go to the subscriber with the fewest; topics with few subscribers first.
3. Loads are balanced: along a path of members a → b → c, where each can take a partition of the
   one before it, the load of a decreases by one and that of c increases by one, if c has at least
   two fewer than a. When no such path is left, no assignment is more even.

Step 3 is bounded: a group of thousands of members and topics must not block the coordinator.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from odradek_broker.group.consumer.assignors.spec import MemberSpec
from odradek_broker.group.consumer.member import Partitions
from odradek_protocol.ids import TopicId

TopicIdPartition = tuple[TopicId, int]

# Members visited while balancing: some 200 ms of work. If that is not enough, the assignment is
# still valid, sticky and nearly even.
LEVELLING_STEPS_MAX = 100_000


def valid(
    spec: MemberSpec, partition_counts: Mapping[TopicId, int], taken: set[TopicIdPartition]
) -> list[TopicIdPartition]:
    """The part of the old target that exists, is subscribed to and no other member has."""
    return [
        (topic_id, partition)
        for topic_id in sorted(spec.target)
        if topic_id in spec.topics
        for partition in sorted(spec.target[topic_id])
        if partition < partition_counts[topic_id] and (topic_id, partition) not in taken
    ]


def by_topic(partitions: Iterable[TopicIdPartition]) -> Partitions:
    grouped: dict[TopicId, set[int]] = {}
    for topic_id, partition in partitions:
        grouped.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in grouped.items()}


def assign(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[TopicId, int]
) -> dict[str, Partitions]:
    return _Assignment(members, partition_counts).build()


class _Assignment:
    def __init__(
        self, members: Mapping[str, MemberSpec], partition_counts: Mapping[TopicId, int]
    ) -> None:
        self.members = members
        self.partition_counts = partition_counts
        self.subscribers: dict[TopicId, list[str]] = {}
        for member_id in sorted(members):
            for topic_id in members[member_id].topics:
                self.subscribers.setdefault(topic_id, []).append(member_id)
        # By member and topic; a member's topics without a partition are absent.
        self.held: dict[str, dict[TopicId, list[int]]] = {member_id: {} for member_id in members}
        self.load = dict.fromkeys(members, 0)
        self.steps_left = LEVELLING_STEPS_MAX

    def build(self) -> dict[str, Partitions]:
        self._keep()
        self._fill()
        self._level()
        return {
            member_id: {topic_id: frozenset(numbers) for topic_id, numbers in held.items()}
            for member_id, held in self.held.items()
        }

    def _give(self, member_id: str, topic_id: TopicId, partition: int) -> None:
        self.held[member_id].setdefault(topic_id, []).append(partition)
        self.load[member_id] += 1

    def _take(self, member_id: str, topic_id: TopicId) -> int:
        """The partition that was added last: rather a new one than one that the member had."""
        partition = self.held[member_id][topic_id].pop()
        if not self.held[member_id][topic_id]:
            del self.held[member_id][topic_id]
        self.load[member_id] -= 1
        return partition

    def _keep(self) -> None:
        taken: set[TopicIdPartition] = set()
        for member_id in sorted(self.members):
            for topic_id, partition in valid(self.members[member_id], self.partition_counts, taken):
                taken.add((topic_id, partition))
                self._give(member_id, topic_id, partition)
        self.taken = taken

    def _fill(self) -> None:
        for topic_id in sorted(self.subscribers, key=lambda t: (len(self.subscribers[t]), t)):
            for partition in range(self.partition_counts[topic_id]):
                if (topic_id, partition) not in self.taken:
                    fewest = min(self.subscribers[topic_id], key=self.load.__getitem__)
                    self._give(fewest, topic_id, partition)

    def _level(self) -> None:
        pending = deque(sorted(self.members, key=lambda m: -self.load[m]))
        stuck = 0
        while pending and stuck < len(pending) and self.steps_left > 0:
            member_id = pending.popleft()
            moved = False
            while self.load[member_id] > 1 and (path := self._path_down(member_id)):
                for giver, topic_id, taker in path:
                    self._give(taker, topic_id, self._take(giver, topic_id))
                moved = True
            stuck = 0 if moved else stuck + 1
            pending.append(member_id)

    def _path_down(self, start: str) -> list[tuple[str, TopicId, str]]:
        """The shortest path to a member with at least two fewer than `start`, or None."""
        reached_by: dict[str, tuple[str, TopicId]] = {}
        topics_seen: set[TopicId] = set()
        queue = deque([start])
        while queue and self.steps_left > 0:
            giver = queue.popleft()
            self.steps_left -= 1
            for topic_id in sorted(self.held[giver].keys() - topics_seen):
                topics_seen.add(topic_id)
                for taker in self.subscribers[topic_id]:
                    self.steps_left -= 1
                    if taker == start or taker in reached_by:
                        continue
                    reached_by[taker] = (giver, topic_id)
                    if self.load[taker] <= self.load[start] - 2:
                        return self._unwind(start, taker, reached_by)
                    queue.append(taker)
        return []

    @staticmethod
    def _unwind(
        start: str, end: str, reached_by: dict[str, tuple[str, TopicId]]
    ) -> list[tuple[str, TopicId, str]]:
        path, taker = [], end
        while taker != start:
            giver, topic_id = reached_by[taker]
            path.append((giver, topic_id, taker))
            taker = giver
        return path
