"""Every marker is written once its partition has a leader, and no other marker is written."""

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek_broker.coordinator.broker_calls import BrokerCalls
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.txn import markers
from odradek_broker.txn.markers import FencedError, MarkerSender, TxnMarker
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.struct import Struct

MARKER = TxnMarker(7, 3, True, 1, 2)


class FakeCluster:
    """Brokers that refuse, vanish and hand over; remembers which partition got which marker."""

    def __init__(self, rng: Random, partitions: int) -> None:
        self.rng = rng
        self.leaders = {n: rng.randrange(3) for n in range(partitions)}
        self.written: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self.failures = 60
        self.requests = 0
        self.fenced = False

    def image(self) -> MetadataImage:
        registrations = {
            n: SimpleNamespace(leader=leader) for n, leader in self.leaders.items() if leader > -2
        }
        topic = SimpleNamespace(partitions=registrations)
        return cast(MetadataImage, SimpleNamespace(topics={"t": topic}))

    async def call(self, broker_id: int, *args: Any) -> Struct:
        await asyncio.sleep(0)
        self.requests += 1
        if self._fails(0.3):
            raise PeerUnavailable("gone")
        request = args[2]
        return Struct(markers=[self._write(broker_id, marker) for marker in request.markers])

    def _fails(self, share: float) -> bool:
        if self.failures <= 0 or self.rng.random() > share:
            return False
        self.failures -= 1
        return True

    def _write(self, broker_id: int, marker: Struct) -> Struct:
        results = []
        for index in marker.topics[0].partition_indexes:
            code = ErrorCode.none
            if self.fenced:
                code = ErrorCode.transaction_coordinator_fenced
            elif self.leaders[index] != broker_id:
                code = ErrorCode.not_leader_or_follower
            elif self._fails(0.3):
                code = self.rng.choice(
                    (ErrorCode.not_enough_replicas, ErrorCode.unknown_topic_or_partition)
                )
                self.leaders[index] = self.rng.choice((-1, 0, 1, 2))
            else:
                self.written[index] += 1
            results.append(Struct(partition_index=index, error_code=code))
        for index, leader in self.leaders.items():
            if leader == -1:
                self.leaders[index] = self.rng.randrange(3)
        topic = Struct(name="t", partitions=results)
        return Struct(producer_id=marker.producer_id, topics=[topic])


def sender_to(cluster: FakeCluster) -> MarkerSender:
    return MarkerSender(cast(BrokerCalls, cluster), cluster.image)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "RETRY_SECONDS", 0.0)


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", n) for n in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_all_are_written_at_last(seed: int) -> None:
    cluster = FakeCluster(Random(seed), 8)
    asyncio.run(sender_to(cluster).write(MARKER, partitions(8), lambda: True))
    assert all(count >= 1 for count in cluster.written.values())


def test_a_deleted_topic_is_done() -> None:
    cluster = FakeCluster(Random(1), 3)
    cluster.leaders = {0: -2, 1: -2, 2: -2}
    asyncio.run(sender_to(cluster).write(MARKER, partitions(3), lambda: True))
    assert cluster.requests == 0


def test_a_fenced_coordinator_stops() -> None:
    cluster = FakeCluster(Random(1), 3)
    cluster.fenced = True
    with pytest.raises(FencedError):
        asyncio.run(sender_to(cluster).write(MARKER, partitions(3), lambda: True))


def test_a_coordinator_that_lost_the_partition_stops() -> None:
    cluster = FakeCluster(Random(1), 3)
    cluster.failures = 0
    cluster.leaders = {0: -1, 1: -1, 2: -1}
    with pytest.raises(FencedError):
        asyncio.run(sender_to(cluster).write(MARKER, partitions(3), lambda: False))


def test_many_transactions_share_requests() -> None:
    """A hundred that end at once: a broker has one request in flight, and the next request has
    the markers of the others."""
    cluster = FakeCluster(Random(1), 3)
    cluster.failures = 0
    sender = sender_to(cluster)

    async def story() -> None:
        ours: Callable[[], bool] = lambda: True  # noqa: E731
        await asyncio.gather(
            *(sender.write(MARKER._replace(producer_id=n), partitions(3), ours) for n in range(100))
        )

    asyncio.run(story())
    assert all(count == 100 for count in cluster.written.values())
    assert cluster.requests <= 9
