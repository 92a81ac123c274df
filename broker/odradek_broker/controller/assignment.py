"""Which brokers get the replicas of new partitions. Pure; randomness is an argument.

Round robin from a random start. The first replica (the preferred leader) walks over the
brokers, the others follow at a distance that grows by one each time the walk is complete, so
that the followers of one leader spread over all others. Five brokers, ten partitions, RF 3,
start 0, shift 0:

    p0 0 1 2    p1 1 2 3    p2 2 3 4    p3 3 4 0    p4 4 0 1
    p5 0 2 3    p6 1 3 4    p7 2 4 0    p8 3 0 1    p9 4 1 2

With racks, the walk alternates racks (racks a: 0 1 2, b: 3 4 5 give 0 3 1 4 2 5), and a broker
whose rack already has a replica of the partition is passed over while another rack has none.
Used for CreateTopics and CreatePartitions.
"""

from collections.abc import Mapping, Sequence
from random import Random

from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.model.ids import BrokerId

Racks = Mapping[BrokerId, str | None]


def assign_replicas(
    racks: Racks, partitions: int, replication_factor: int, rng: Random, first_partition: int = 0
) -> list[tuple[BrokerId, ...]]:
    """Replicas for `partitions` new ones that follow the `first_partition` existing ones.

    Racks are used only when every broker has one, as in Kafka. Raises KafkaError
    (INVALID_REPLICATION_FACTOR) when there are fewer brokers than replicas asked for.
    """
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {len(racks)} broker(s) are registered or some brokers have all their log "
            "directories cordoned.",
        )
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    order = alternate_racks(known) if len(known) == len(racks) else sorted(racks)
    start = rng.randrange(len(order))
    shift = rng.randrange(len(order))
    assigned = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        leader_at = (partition + start) % len(order)
        if len(known) == len(racks):
            assigned.append(_spread_over_racks(order, leader_at, shift, replication_factor, known))
        else:
            followers = range(replication_factor - 1)
            places = [leader_at] + [_place(leader_at, shift + k, len(order)) for k in followers]
            assigned.append(tuple(order[place] for place in places))
    return assigned


def alternate_racks(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """Brokers in an order that goes from rack to rack: one of each, then the next of each."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, queues), default=0)
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]


def _place(leader_at: int, distance: int, brokers: int) -> int:
    """The place `distance` steps after the leader's next one; never the leader's own."""
    return (leader_at + 1 + distance % (brokers - 1)) % brokers


def _spread_over_racks(
    order: Sequence[BrokerId],
    leader_at: int,
    shift: int,
    replication_factor: int,
    racks: Mapping[BrokerId, str],
) -> tuple[BrokerId, ...]:
    rack_count = len(set(racks.values()))
    replicas = [order[leader_at]]
    used_racks = {racks[replicas[0]]}
    step = 0
    while len(replicas) < replication_factor:
        # The shift counts racks, not brokers: it must not break the alternation.
        broker = order[_place(leader_at, shift * rack_count + step, len(order))]
        step += 1
        if broker in replicas or (racks[broker] in used_racks and len(used_racks) < rack_count):
            continue
        replicas.append(broker)
        used_racks.add(racks[broker])
    return tuple(replicas)
