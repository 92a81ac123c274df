"""Counts over the whole cluster in /metrics, and quantiles over the last minutes."""

from __future__ import annotations

import threading
from dataclasses import replace
from uuid import UUID

from odradek_broker.admin.cluster_metrics import ClusterCollector
from odradek_broker.admin.recent import WINDOW_MS, IdleShare, Recent, RecentTimes
from odradek_broker.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from odradek_broker.runtime.metrics import Histogram
from odradek_protocol.ids import BrokerId, TopicId

GOOD, FAILED = UUID(int=100), UUID(int=101)
TOPIC_ID: TopicId = UUID(int=7)
BOTH = (BrokerId(1), BrokerId(2))


def broker(number: int, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        id=BrokerId(number), epoch=1, incarnation_id=UUID(int=number), endpoints={}, features=(),
        rack=None, fenced=fenced, in_controlled_shutdown=False, log_dirs=(GOOD,),
    )  # fmt: skip


def partition(leader: int, directory: UUID = GOOD) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=BOTH, isr=BOTH, removing_replicas=(), adding_replicas=(),
        leader=BrokerId(leader),
        leader_epoch=1, partition_epoch=1, directories=(directory, GOOD),
    )  # fmt: skip


def counts(image: MetadataImage, node_id: int = 1) -> dict[str, float]:
    found = ClusterCollector(BrokerId(node_id), lambda: image).collect()
    return {family.name.split("_")[-1]: family.samples[0].value for family in found}


def test_partitions_without_a_leader_and_fenced_brokers_are_counted() -> None:
    partitions = {0: partition(1), 1: partition(2), 2: partition(-1), 3: partition(1, FAILED)}
    topic = TopicImage("orders", TOPIC_ID, partitions)
    image = MetadataImage(
        brokers={BrokerId(1): broker(1), BrokerId(2): broker(2, fenced=True)},
        topics={"orders": topic},
        topics_by_id={TOPIC_ID: topic},
    )
    assert counts(image) == {
        "activebrokercount": 1, "fencedbrokercount": 1, "globaltopiccount": 1,
        "globalpartitioncount": 4, "offlinepartitionscount": 1,
        "preferredreplicaimbalancecount": 2, "offlinereplicacount": 1,
    }  # fmt: skip
    assert counts(image, node_id=2)["offlinereplicacount"] == 0
    assert counts(replace(image, brokers={}))["offlinereplicacount"] == 0, "not registered yet"


def test_a_quantile_drops_samples_older_than_two_windows() -> None:
    times, histogram = RecentTimes(), Histogram()
    now_ms = 0.0
    for _ in range(100):
        histogram.observe_us(1_000_000)
    assert times.of(histogram, now_ms).count == 100
    now_ms += WINDOW_MS
    assert times.of(histogram, now_ms).count == 100, "one window later they still count"
    now_ms += WINDOW_MS
    histogram.observe_us(10)
    recent = times.of(histogram, now_ms)
    assert (recent.count, recent.quantile_us(0.99)) == (1, 16.0)
    assert recent.total_us == 10
    now_ms += 2 * WINDOW_MS
    times.of(histogram, now_ms)
    assert times.of(histogram, now_ms + WINDOW_MS).count == 0


def test_a_value_is_taken_once_per_window() -> None:
    taken: list[int] = []

    def take() -> int:
        taken.append(len(taken) + 1)
        return taken[-1]

    recent = Recent(0, 0.0)
    found = [recent.since(at * WINDOW_MS / 3, take) for at in range(10)]
    assert found == [0, 0, 0, 0, 0, 0, 1, 1, 1, 2]
    assert taken == [1, 2, 3]


def test_the_idle_share_is_that_of_the_creating_thread() -> None:
    idle = IdleShare()
    busy = threading.Thread(target=lambda: sum(range(3_000_000)))
    busy.start()
    busy.join()  # this thread waits
    waiting = idle.share()
    sum(range(10_000_000))
    assert 0 <= idle.share() < waiting <= 1
