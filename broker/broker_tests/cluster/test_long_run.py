"""Faults of all kinds in random order, until 100,000 acknowledged writes are checked.

make test-cluster                       the seed of the faults is printed
ODRADEK_SEED=7 make test-cluster        the same order of faults again
"""

from __future__ import annotations

import os
import random
import time

import pytest

from odradek_testkit.cluster import Cluster
from odradek_testkit.load import Load

WRITES = 100_000
CONFIG = {"min.insync.replicas": "2"}
IMPATIENT = {"socket.timeout.ms": 3_000, "request.timeout.ms": 3_000}


class Faults:
    """Each fault heals itself, and leaves a cluster with all replicas in sync."""

    def __init__(self, cluster: Cluster, topic: str, rng: random.Random) -> None:
        self.cluster, self.topic, self.rng = cluster, topic, rng
        self.kinds = (self.kill, self.kill_controller, self.pause, self.stop, self.kill_all,
                      self.kill_two)  # fmt: skip

    def next(self) -> str:
        fault = self.rng.choice(self.kinds)
        fault()
        self.cluster.wait_in_sync(self.topic, 60)
        return fault.__name__

    def kill(self) -> None:
        self._down_and_up(self.rng.choice(list(self.cluster.nodes)))

    def kill_controller(self) -> None:
        self._down_and_up(self.cluster.controller())

    def kill_two(self) -> None:
        first, second = self.rng.sample(list(self.cluster.nodes), 2)
        self.cluster.kill(first)
        time.sleep(self.rng.random() * 4)
        self.cluster.kill(second)
        time.sleep(self.rng.random() * 4)
        self.cluster.start([first, second])

    def kill_all(self) -> None:
        self.cluster.kill()
        self.cluster.start()

    def pause(self) -> None:
        node = self.cluster.nodes[self.rng.choice(list(self.cluster.nodes))]
        node.pause()
        time.sleep(self.rng.choice((0.5, 3.0, 6.0)))
        node.resume()

    def stop(self) -> None:
        node_id = self.rng.choice(list(self.cluster.nodes))
        self.cluster.stop(node_id)
        self.cluster.start([node_id])

    def _down_and_up(self, node_id: int) -> None:
        self.cluster.kill(node_id)
        time.sleep(self.rng.random() * 6)
        self.cluster.start([node_id])


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_a_hundred_thousand_writes(cluster: Cluster, topic: str) -> None:
    seed = int(os.environ.get("ODRADEK_SEED") or random.randrange(10_000))
    print(f"\nODRADEK_SEED={seed}")
    cluster.create_topic(topic, partitions=6, config=CONFIG)
    faults = Faults(cluster, topic, random.Random(seed))
    happened: list[str] = []
    with Load(
        cluster, topic, partitions=6, producers=2, per_second=2_000, settings=IMPATIENT
    ) as load:
        while load.acked < WRITES:
            before = load.acked
            happened.append(faults.next())
            load.wait_for_every_partition(60)
            print(f"{load.acked:7d} acks, +{load.acked - before} during {happened[-1]}", flush=True)
    print(load.check(), "acknowledged writes checked;", len(happened), "faults")
