"""Assigns the replicas of new partitions to brokers. Does no I/O; randomness is an argument.

Round robin from a random start. The first replica (the preferred leader) walks over the
brokers, the others follow at a distance that grows by one each time the walk is complete, so
that the followers of one leader spread over all others. Five brokers, ten partitions, RF 3,
start 0, shift 0:

    p0 0 1 2    p1 1 2 3    p2 2 3 4    p3 3 4 0    p4 4 0 1
    p5 0 2 3    p6 1 3 4    p7 2 4 0    p8 3 0 1    p9 4 1 2

With racks, the walk alternates racks (racks a: 0 1 2, b: 3 4 5 give 0 3 1 4 2 5), and a broker
whose rack already has a replica of the partition is passed over while another rack has none.

A walk that is cut short would leave some brokers with two replicas more than others (p0 p1 p2
alone: broker 2 has three, broker 0 one). So where no whole round is left to assign, or the
partitions that exist are not spread evenly, each replica goes to a broker that has the fewest,
and counts differ by at most one wherever racks of equal size allow it.

Used for CreateTopics, CreatePartitions, and by tools that propose reassignments.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId

Racks = Mapping[BrokerId, str | None]
Replicas = tuple[BrokerId, ...]


def assign_replicas(
    racks: Racks,
    partitions: int,
    replication_factor: int,
    rng: Random,
    existing: Sequence[Sequence[BrokerId]] = (),
) -> list[Replicas]:
    """Replicas for `partitions` new partitions of a topic that has the `existing` ones.

    Racks are used only when every broker has one, as in Kafka. Raises KafkaError
    (INVALID_REPLICATION_FACTOR) if there are fewer brokers than replicas.
    """
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {len(racks)} broker(s) are registered or some brokers have all their log "
            "directories cordoned.",
        )
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    if len(known) == len(racks):
        order = alternate_racks(known)
    else:  # as if every broker were in a rack of its own
        order, known = sorted(racks), {broker: str(broker) for broker in racks}
    walk = _Walk(order, known, replication_factor, rng, existing)
    found: list[Replicas] = []
    while len(found) < partitions:
        left = partitions - len(found)
        if left >= len(order) and walk.is_even:
            found += walk.round()
        else:
            found += walk.fill(min(left, len(order)))
    return found


def alternate_racks(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """Brokers in an order that goes from rack to rack: one of each, then the next of each."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, queues), default=0)
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]


class _Walk:
    """Over the brokers in `order`; knows how many leaders and replicas each of them has."""

    def __init__(
        self,
        order: Sequence[BrokerId],
        racks: Mapping[BrokerId, str],
        replication_factor: int,
        rng: Random,
        existing: Sequence[Sequence[BrokerId]],
    ) -> None:
        self._order = order
        self._racks = racks
        self._rack_count = len(set(racks.values()))
        self._factor = replication_factor
        self._next_leader = rng.randrange(len(order))
        self._shift = rng.randrange(len(order))
        self._leaders = dict.fromkeys(order, 0)
        self._replicas = dict.fromkeys(order, 0)
        for replicas in existing:
            self._count(replicas)

    @property
    def is_even(self) -> bool:
        return len({*self._leaders.values()}) == 1 and len({*self._replicas.values()}) == 1

    def _count(self, replicas: Sequence[BrokerId]) -> None:
        for at, broker in enumerate(replicas):
            if broker in self._replicas:  # brokers outside `order` may hold replicas
                self._replicas[broker] += 1
                self._leaders[broker] += at == 0

    # -- whole rounds --------------------------------------------------------------------------

    def round(self) -> list[Replicas]:
        """One partition for each broker to lead."""
        size = len(self._order)
        found = [self._follow((self._next_leader + i) % size) for i in range(size)]
        for replicas in found:
            self._count(replicas)
        self._shift += 1
        return found

    def _follow(self, leader_at: int) -> Replicas:
        replicas = [self._order[leader_at]]
        for broker in self._after(leader_at):
            if len(replicas) == self._factor:
                break
            if self._may_join(broker, replicas):
                replicas.append(broker)
        return tuple(replicas)

    def _after(self, leader_at: int) -> Iterator[BrokerId]:
        """The other brokers, starting at a distance behind the leader; repeated often enough that
        a broker that was skipped because of its rack gets its turn."""
        others = len(self._order) - 1
        # The shift counts racks, not brokers: it must not break the alternation.
        step = (
            self._shift
            if self._rack_count == len(self._order)
            else (self._shift * self._rack_count)
        )
        for i in range(2 * others):
            yield self._order[(leader_at + 1 + (step + i) % others) % len(self._order)]

    def _may_join(self, broker: BrokerId, replicas: Sequence[BrokerId]) -> bool:
        if broker in replicas:
            return False
        used = {self._racks[replica] for replica in replicas}
        return len(used) == self._rack_count or self._racks[broker] not in used

    # -- the rest ------------------------------------------------------------------------------

    def fill(self, partitions: int) -> list[Replicas]:
        """Partitions that do not fill a round, or that compensate for an uneven start."""
        found = [[leader] for leader in self._new_leaders(partitions)]
        for replicas in found:
            walk = list(dict.fromkeys(self._after(self._order.index(replicas[0]))))
            while len(replicas) < self._factor:
                broker = min((b for b in walk if self._may_join(b, replicas)), key=self._fullness)
                replicas.append(broker)
                self._replicas[broker] += 1
        self._level(found)
        return [tuple(replicas) for replicas in found]

    def _fullness(self, broker: BrokerId) -> tuple[int, int]:
        """Among equals a broker that leads: the others will lead the next partitions."""
        return self._replicas[broker], -self._leaders[broker]

    def _new_leaders(self, partitions: int) -> Iterator[BrokerId]:
        """Brokers that lead the fewest partitions; among them those with the fewest replicas."""
        size = len(self._order)
        for _ in range(partitions):
            walk = [(self._next_leader + i) % size for i in range(size)]
            at = min(walk, key=self._load)
            self._next_leader = (at + 1) % size
            self._count(self._order[at : at + 1])
            yield self._order[at]

    def _load(self, place: int) -> tuple[int, int]:
        broker = self._order[place]
        return self._leaders[broker], self._replicas[broker]

    def _level(self, found: list[list[BrokerId]]) -> None:
        """Moves followers away from brokers with two more replicas than others, if racks allow it.

        A larger difference comes from an uneven start, which these moves cannot compensate.
        """
        for _ in range(len(found) * self._factor):  # an upper bound on the number of moves
            least, most = min(self._replicas.values()), max(self._replicas.values())
            crowded = [broker for broker in self._order if self._replicas[broker] == most]
            if most - least != 2 or not any(self._relieve(found, b) for b in crowded):
                return

    def _relieve(self, found: list[list[BrokerId]], crowded: BrokerId) -> bool:
        """Moves one replica to a broker with two fewer, if necessary through brokers in between."""
        came_from: dict[BrokerId, BrokerId] = {}
        queue = [crowded]
        for broker in queue:
            for other in self._order:
                if other == crowded or other in came_from or not self._place(found, broker, other):
                    continue
                came_from[other] = broker
                queue.append(other)
                if self._replicas[crowded] - self._replicas[other] > 1:
                    self._move_along(found, came_from, other)
                    return True
        return False

    def _move_along(
        self, found: list[list[BrokerId]], came_from: Mapping[BrokerId, BrokerId], last: BrokerId
    ) -> None:
        """Carries out the moves from the end, so that each broker has room before it gets one. A
        move that an earlier one made impossible is skipped; its broker keeps one replica more."""
        while last in came_from:
            before = came_from[last]
            replicas = self._place(found, before, last)
            if replicas is not None:
                replicas[replicas.index(before)] = last
                self._replicas[before] -= 1
                self._replicas[last] += 1
            last = before

    def _place(
        self, found: list[list[BrokerId]], broker: BrokerId, other: BrokerId
    ) -> list[BrokerId] | None:
        """A partition that `broker` follows and `other` could follow instead."""
        for replicas in found:
            if broker in replicas[1:] and other not in replicas:
                moved = [other if replica == broker else replica for replica in replicas]
                if self._spread(moved) >= self._spread(replicas):
                    return replicas
        return None

    def _spread(self, replicas: Sequence[BrokerId]) -> int:
        return len({self._racks[replica] for replica in replicas})
