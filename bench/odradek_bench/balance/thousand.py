"""1,000 brokers on paper: `python -m odradek_bench.balance.thousand [--replicas 1000000]`.

The cluster exists only as metadata: the controller's own decisions run on the image of the metadata
log that such a cluster would have, and the optimizer on its loads. What has no part in this is the
network, the disks, and the brokers.

    step                                     | CPU s
    the image is built from its records      | …
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from odradek_broker.controller import brokers as controller_brokers
from odradek_broker.controller.heartbeats import BrokerSessions
from odradek_broker.controller.reassignments import alter_partition_reassignments
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.metadata.records import (
    Endpoint,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from odradek_operator.kafka.balance.model import Cluster
from odradek_operator.kafka.balance.search import Options, optimize
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct
from odradek_testkit.skewed_clusters import skewed

T = TypeVar("T")
BROKERS, RACKS = 1_000, 3
HEARTBEATS = 100_000
MOVES = 1_000
SESSION_MS = 9_000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1_000_000)
    parser.add_argument("--optimizer", action="store_true", help="also the optimizer, minutes")
    options = parser.parse_args()
    cluster = skewed(BROKERS, options.replicas, seed=1, racks=RACKS)
    print(f"{BROKERS:,} brokers, {cluster.partitions:,} partitions with three replicas", flush=True)
    print("| step | CPU | records |\n|---|---|---|")
    image = _timed("the image is built from its records", lambda: _image(cluster))
    _heartbeats(image)
    records = _timed("one broker is lost: leaders elected, ISRs shrunk", lambda: _lose(image, [7]))
    after = _timed("… and replayed, as every broker does", lambda: _after(image, records))
    _timed("it returns, and leads what has no leader", lambda: list(
        controller_brokers.unfence(after, BrokerId(7), unclean_default=False)))  # fmt: skip
    rack = [b for b in range(BROKERS) if int(cluster.racks[b]) == 0]
    lost = _timed(f"a rack of {len(rack)} brokers is lost at once", lambda: _lose(image, rack))
    _timed("… and replayed", lambda: _after(image, lost))
    _timed(f"{MOVES:,} partitions begin to move", lambda: _move(image, cluster))
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
    if options.optimizer:
        plan = _timed("a broker is added: the proposal", lambda: optimize(
            cluster, Options(mode="add-brokers", brokers=(BROKERS - 1,))).steps)  # fmt: skip
        print(f"{len(plan)} steps", file=sys.stderr)
        _timed("the whole cluster is balanced: the proposal", lambda: optimize(cluster).steps)


def _timed(what: str, do: Callable[[], T]) -> T:
    began = time.process_time()
    found = do()
    count = f"{len(found):,}" if isinstance(found, list) else ""
    print(f"| {what} | {time.process_time() - began:.2f} s | {count} |", flush=True)
    return found


def _image(cluster: Cluster) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for broker in range(BROKERS):
        delta.replay(
            RegisterBrokerRecord(
                broker_id=BrokerId(broker),
                incarnation_id=UUID(int=broker + 1),
                broker_epoch=broker,
                end_points=(Endpoint("PLAINTEXT", f"broker-{broker}", 9092, 0),),
                features=(),
                rack=f"rack-{cluster.racks[broker]}",
                fenced=False,
                in_controlled_shutdown=False,
                log_dirs=(UUID(int=100 + broker),),
            )
        )
    for number, name in enumerate(cluster.topics):
        delta.replay(TopicRecord(name, UUID(int=1_000_000 + number)))
    for row in range(cluster.partitions):
        replicas = tuple(BrokerId(int(b)) for b in cluster.replicas[row])
        delta.replay(
            PartitionRecord(
                partition_id=int(cluster.partition[row]),
                topic_id=UUID(int=1_000_000 + int(cluster.topic[row])),
                replicas=replicas,
                isr=replicas,
                removing_replicas=(),
                adding_replicas=(),
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(UUID(int=100 + b) for b in replicas),
            )
        )
    return delta.finish(cluster.partitions).after


def _after(image: MetadataImage, records: list[MetadataRecord]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.finish(image.offset + len(records)).after


def _lose(image: MetadataImage, brokers: list[int]) -> list[MetadataRecord]:
    return controller_brokers.fence(image, list(map(BrokerId, brokers)), unclean_default=False)


def _heartbeats(image: MetadataImage) -> None:
    """1,000 brokers send one every two seconds: 500 a second."""
    sessions = BrokerSessions(image, 0.0, SESSION_MS)
    began = time.process_time()
    for number in range(HEARTBEATS):
        sessions.heard(BrokerId(number % BROKERS), number, number / 500.0 * 1000.0)
    each = (time.process_time() - began) / HEARTBEATS
    print(f"| a heartbeat is noted; 500 a second are {500 * each:.2%} of a core | {each:.7f} s | |")
    _timed("all sessions are looked through", lambda: sessions.expired(image, 1e9))


def _move(image: MetadataImage, cluster: Cluster) -> list[object]:
    """A replica of each of the first partitions goes to the next broker of its rack."""
    topics: dict[str, list[Struct]] = {}
    for row in range(MOVES):
        replicas = [int(b) for b in cluster.replicas[row]]
        replicas[-1] = (replicas[-1] + RACKS) % (BROKERS - BROKERS % RACKS)
        asked = Struct(partition_index=int(cluster.partition[row]), replicas=replicas)
        topics.setdefault(cluster.topics[int(cluster.topic[row])], []).append(asked)
    request = Struct(
        topics=[Struct(name=name, partitions=asked) for name, asked in topics.items()],
        allow_replication_factor_change=True,
    )
    found = alter_partition_reassignments(image, request, unclean_default=False)
    return list(found.all_records())


if __name__ == "__main__":
    main()
