"""Generated clusters that are out of balance, of any size, for the optimizer's tests and benchmark.

    cluster = skewed(brokers=30, replicas=10_000, seed=1)

Topics have one to hundreds of partitions with three replicas in three racks or more; sizes and
rates are log-normal, as in real clusters. Some brokers are twice as likely to hold a replica as
others, and one in ten is new and nearly empty.
"""

from __future__ import annotations

import numpy as np

from odradek_operator.kafka.balance.model import Cluster, Ints

FACTOR = 3


def skewed(
    brokers: int, replicas: int, seed: int, racks: int = 3, disk_bytes_max: float = 0.0
) -> Cluster:
    """`disk_bytes_max` 0: disks have one and a half times the room that all data needs."""
    rng = np.random.default_rng(seed)
    partitions = max(1, replicas // FACTOR)
    racks = min(racks, brokers)
    sizes = rng.zipf(1.5, partitions).clip(1, 200)
    topics = int(np.searchsorted(np.cumsum(sizes), partitions)) + 1
    topic = np.repeat(np.arange(topics), sizes[:topics])[:partitions].astype(np.int32)
    first = np.searchsorted(topic, np.arange(topics))
    rack = (np.arange(brokers) % racks).astype(np.int32)
    size_bytes = rng.lognormal(20.0, 1.5, partitions)
    bytes_in = size_bytes / 86_400 * rng.lognormal(0.0, 1.0, partitions)
    room = disk_bytes_max or 1.5 * size_bytes.sum() * FACTOR / brokers
    return Cluster(
        broker_ids=np.arange(brokers, dtype=np.int32),
        racks=rack,
        live=np.ones(brokers, dtype=np.bool_),
        receives=np.ones(brokers, dtype=np.bool_),
        disk_bytes_max=np.full(brokers, 2 * room),
        replicas_max=np.full(brokers, np.inf),
        topics=tuple(f"topic-{n}" for n in range(topics)),
        topic=topic,
        partition=(np.arange(partitions) - first[topic]).astype(np.int32),
        replicas=_placed(rng, rack, racks, partitions),
        size_bytes=size_bytes,
        bytes_in=bytes_in,
        bytes_out=bytes_in * rng.integers(0, 4, partitions),
        fixed=np.zeros(partitions, dtype=np.bool_),
        below_min_isr=np.zeros(partitions, dtype=np.bool_),
        lagging=np.zeros((partitions, min(FACTOR, racks)), dtype=np.bool_),
    )


def _placed(rng: np.random.Generator, rack: Ints, racks: int, partitions: int) -> Ints:
    """One replica in each of three racks, the leader's rack at random, brokers by popularity."""
    brokers = len(rack)
    popularity = rng.uniform(1.0, 2.0, brokers)
    popularity[rng.permutation(brokers)[: brokers // 10]] = 0.02
    order = rng.permuted(np.tile(np.arange(racks), (partitions, 1)), axis=1)[:, :FACTOR]
    placed = np.empty(order.shape, dtype=np.int32)
    for number in range(racks):
        members = np.nonzero(rack == number)[0]
        share = np.cumsum(popularity[members])
        drawn = np.searchsorted(share, rng.uniform(0, share[-1], partitions))
        rows, places = np.nonzero(order == number)
        placed[rows, places] = members[drawn[rows]]
    return placed
