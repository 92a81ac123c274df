"""Answers about capacity, from sizes, rates and retention. Does no I/O.

    fillings(cluster, limits)            per broker: how full it is, and when it will be full
    losses(cluster, racks)               per rack: what its loss does to the others
    need(cluster, limits, Wanted(times=2.0))  how many brokers for twice the load, and why

A replica grows by what producers write, up to what retention allows: 1 MB/s with retention.ms of a
day ends at 86 GB and a segment. A compacted topic is taken to stay as large as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from odradek_operator.kafka.balance.goals import LOADS
from odradek_operator.kafka.balance.loads import DISK_USE_MAX
from odradek_operator.kafka.balance.model import NO_BROKER, Bools, Cluster, Floats, Ints
from odradek_operator.kafka.balance.search import Options, optimize
from odradek_operator.kafka.balance.state import State

HORIZON_S = 10 * 365 * 86_400.0  # what takes longer does not happen
HALVINGS = 60
CPU_USE_MAX = 0.7  # of the one core that our broker's loop has
NETWORK_BYTES_MAX = 100e6  # per second, in each direction: 80 % of 1 Gbit/s
SIMULATED_MAX = 300_000  # replicas: a larger cluster is only calculated
GROWTH_MAX = 100  # times as many brokers as now; more are not looked for


@dataclass(frozen=True)
class Retention:
    """Settings of a topic; -1: no limit."""

    ms: float = 604_800_000.0
    bytes: float = -1.0  # of a partition
    segment_bytes: float = 1_073_741_824.0
    compacts: bool = False  # and deletes nothing


def limits_of(cluster: Cluster, topics: Mapping[str, Retention]) -> Floats:
    """P: the largest size that each partition reaches; never below its present size."""
    default = Retention()
    of = [topics.get(name, default) for name in cluster.topics]
    ms = np.array([r.ms if r.ms >= 0 else np.inf for r in of])[cluster.topic]
    most = np.array([r.bytes if r.bytes >= 0 else np.inf for r in of])[cluster.topic]
    segment = np.array([r.segment_bytes for r in of])[cluster.topic]
    compacts = np.array([r.compacts for r in of], dtype=np.bool_)[cluster.topic]
    moving = cluster.bytes_in > 0
    by_time = np.where(moving, np.where(moving, cluster.bytes_in, 1.0) * ms / 1000.0, 0.0)
    # Retention deletes whole segments, and never the one that is written.
    bound = np.minimum(by_time, most) + np.where(moving, segment, 0.0)
    found: Floats = np.maximum(cluster.size_bytes, np.where(compacts, 0.0, bound))
    return found


@dataclass(frozen=True)
class Filling:
    """The disk of a broker."""

    broker: int
    used_bytes: float
    room_bytes: float  # of its log directories, for replicas
    grows_by: float  # bytes per second, now
    final_bytes: float  # when retention deletes as much as is written
    full_in_s: float | None  # None: never, at this rate


def fillings(cluster: Cluster, limits: Floats) -> list[Filling]:
    """`limits`: P, see `limits_of`."""
    rows, places = np.nonzero(cluster.replicas != NO_BROKER)
    at, brokers = cluster.replicas[rows, places], cluster.brokers
    size, rate, top = cluster.size_bytes[rows], cluster.bytes_in[rows], limits[rows]

    def used_after(seconds: Floats) -> Floats:
        grown = np.minimum(size + rate * seconds[at], top)
        found: Floats = np.bincount(at, grown, brokers).astype(np.float64)
        return found

    room = cluster.disk_bytes_max / DISK_USE_MAX
    low, high = np.zeros(brokers), np.full(brokers, HORIZON_S)
    never = ~(used_after(high) >= room)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        full = used_after(middle) >= room
        low, high = np.where(full, low, middle), np.where(full, middle, high)
    used = np.bincount(at, size, brokers)
    growing = np.bincount(at, np.where(size < top, rate, 0.0), brokers)
    final = np.bincount(at, np.where(rate > 0, top, size), brokers)
    return [
        Filling(int(cluster.broker_ids[b]), float(used[b]), float(room[b]), float(growing[b]),
                float(final[b]), None if never[b] else float(high[b]))
        for b in range(brokers)
    ]  # fmt: skip


@dataclass(frozen=True)
class Loss:
    """The capacity that remains when all brokers of a rack are down at the same time."""

    rack: str
    brokers: int
    offline: int  # partitions without any replica
    not_writable: int  # of the others, with acks=all: fewer replicas than min.insync.replicas
    # Of the busiest remaining broker, bytes per second to consumers and followers: now and then.
    busiest_out: tuple[int, float, float]
    # Used part of the fullest disk, after the lost replicas are rebuilt in the other racks; None:
    # the room of a disk is not known.
    disk_after: float | None
    fits: bool  # whether they can be rebuilt: enough brokers, and room


def losses(cluster: Cluster, racks: Sequence[str], min_isr: Ints) -> list[Loss]:
    """`racks`: the name for each number in cluster.racks; `min_isr`: P."""
    numbers = np.unique(cluster.racks)
    return [_loss(cluster, int(n), racks[int(n)], min_isr) for n in numbers]


def _loss(cluster: Cluster, rack: int, name: str, min_isr: Ints) -> Loss:
    lost: Bools = cluster.racks == rack
    there = cluster.replicas != NO_BROKER
    left = there & ~np.where(there, lost[cluster.replicas], True)
    count = left.sum(axis=1)
    possible = np.minimum(min_isr, cluster.factor)
    sends = _sends(cluster)
    first = np.where(left.any(axis=1), left.argmax(axis=1), 0)
    rows = np.arange(cluster.partitions)
    now = np.bincount(cluster.replicas[:, 0], sends, cluster.brokers)
    # The first remaining replica leads, and has one follower less for each that is lost.
    heir = cluster.replicas[rows, first]
    gone = cluster.bytes_in * (cluster.factor - count)
    after = np.bincount(heir, np.where(count > 0, sends - gone, 0.0), cluster.brokers)
    after[lost] = -1.0
    busiest = int(after.argmax())
    disk, fits = _rebuilt(cluster, lost, left)
    return Loss(
        name,
        int(lost.sum()),
        int((count == 0).sum()),
        int(((count > 0) & (count < possible)).sum()),
        (int(cluster.broker_ids[busiest]), float(now[busiest]), max(0.0, float(after[busiest]))),
        disk,
        fits,
    )


def _sends(cluster: Cluster) -> Floats:
    """P: bytes per second from the leader, to consumers and followers."""
    found: Floats = cluster.bytes_out + cluster.bytes_in * (cluster.factor - 1)
    return found


def _rebuilt(cluster: Cluster, lost: Bools, left: Bools) -> tuple[float | None, bool]:
    """The lost bytes, spread over the others in proportion to the room that they have."""
    remaining = ~lost & cluster.live
    if not remaining.any() or int(remaining.sum()) < int(cluster.factor.max(initial=0)):
        return None, False
    room = cluster.disk_bytes_max / DISK_USE_MAX
    if not np.isfinite(room[remaining]).all():
        return None, True
    rows, places = np.nonzero(left)
    used = np.bincount(cluster.replicas[rows, places], cluster.size_bytes[rows], cluster.brokers)
    missing = float(cluster.size_bytes @ (cluster.factor - left.sum(axis=1)))
    total = float((used[remaining].sum() + missing) / room[remaining].sum())
    # Replicas only move where they fit: the fullest is at least the average.
    fullest = max(total, float((used[remaining] / room[remaining]).max()))
    return fullest, total <= DISK_USE_MAX


@dataclass(frozen=True)
class Wanted:
    times: float = 2.0  # of the present load
    network_bytes_max: float = NETWORK_BYTES_MAX
    cpu_cores: float | None = None  # that all brokers use now; None: not known


@dataclass(frozen=True)
class Need:
    brokers: int
    now: int
    decided_by: str  # "disk", "network" or "cpu"
    by: Mapping[str, int]  # resource → brokers
    # The fullest and busiest broker in a simulation with so many brokers; None: not simulated.
    disk_after: float | None = None
    out_after: float | None = None
    problems: tuple[str, ...] = ()


def need(cluster: Cluster, limits: Floats, wanted: Wanted) -> Need:
    """The cluster grows by brokers like the average of its own, evenly over its racks.

    Sizes after retention grow with the load, as far as retention goes by time. The proposal for the
    larger cluster is then really made: what does not fit is a problem.
    """
    larger = _scaled(cluster, limits, wanted.times)
    live = int(cluster.live.sum())
    room = cluster.disk_bytes_max[cluster.live]
    by = {}
    if np.isfinite(room).all() and room.mean() > 0:
        by["disk"] = math.ceil(float(larger.size_bytes @ larger.factor) / float(room.mean()))
    out = float(_sends(larger).sum())
    received = float(larger.bytes_in @ larger.factor)
    by["network"] = math.ceil(max(out, received) / wanted.network_bytes_max)
    if wanted.cpu_cores is not None:
        by["cpu"] = math.ceil(wanted.cpu_cores * wanted.times / CPU_USE_MAX)
    # Never fewer than now: the question is how many to add.
    decided = max(by, key=lambda name: by[name])
    racks = len(np.unique(cluster.racks))
    wished = max(live, by[decided])
    brokers = live if wished == live else math.ceil(wished / racks) * racks
    found = Need(brokers, live, decided if by[decided] > live else "", by)
    if brokers > GROWTH_MAX * live:
        return replace(found, problems=(f"more than {GROWTH_MAX} times as many brokers as now",))
    if int(larger.factor.sum()) > SIMULATED_MAX:
        return found
    return _simulated(larger, found, wanted)


def _scaled(cluster: Cluster, limits: Floats, times: float) -> Cluster:
    """With `times` the load, and the sizes that follow once retention is reached."""
    final = np.where(cluster.bytes_in > 0, limits, cluster.size_bytes)
    size = np.where(np.isfinite(final), final, cluster.size_bytes) * times
    return replace_loads(cluster, size, cluster.bytes_in * times, cluster.bytes_out * times)


def replace_loads(
    cluster: Cluster, size: Floats, bytes_in: Floats, bytes_out: Floats, more: int = 0
) -> Cluster:
    """With other loads, and `more` brokers that are empty, evenly over the racks."""
    ids = int(cluster.broker_ids.max(initial=-1)) + 1 + np.arange(more, dtype=np.int32)
    room, count = float(cluster.disk_bytes_max[cluster.live].mean()), np.unique(cluster.racks)
    yes = np.ones(more, dtype=np.bool_)
    return Cluster(
        np.append(cluster.broker_ids, ids).astype(np.int32),
        np.append(cluster.racks, count[np.arange(more) % len(count)]).astype(np.int32),
        np.append(cluster.live, yes), np.append(cluster.receives, yes),
        np.append(cluster.disk_bytes_max, np.full(more, room)),
        np.append(cluster.replicas_max, np.full(more, np.inf)),
        cluster.topics, cluster.topic, cluster.partition, cluster.replicas,
        size, bytes_in, bytes_out,
        np.zeros_like(cluster.fixed), np.zeros_like(cluster.below_min_isr),
        np.zeros_like(cluster.lagging),
    )  # fmt: skip


def _simulated(larger: Cluster, found: Need, wanted: Wanted) -> Need:
    more = found.brokers - found.now
    grown = replace_loads(
        larger, larger.size_bytes, larger.bytes_in, larger.bytes_out, max(0, more)
    )
    plan = optimize(grown, Options(mode="full"))
    state = State(grown.moved_to(plan.replicas), LOADS)
    room = grown.disk_bytes_max / DISK_USE_MAX
    disk = None if not np.isfinite(room).all() else float((state.used_bytes / room).max())
    sent = float(np.bincount(plan.replicas[:, 0], _sends(grown), grown.brokers).max())
    problems = [p.message for p in plan.problems]
    if sent > wanted.network_bytes_max:
        problems.append("one broker still sends more than the network allows: a partition is large")
    return replace(found, disk_after=disk, out_after=sent, problems=tuple(problems))
