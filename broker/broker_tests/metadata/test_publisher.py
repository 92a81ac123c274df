"""Images out of committed records and snapshots, and what subscribers get of them."""

import asyncio
from random import Random
from typing import Any

from broker_tests.broker_ids import ids
from broker_tests.metadata.test_delta import A, B, broker, config, partition, replayed, topic
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.metadata.image_records import records_of
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.record_codec import decode_record, encode_record
from odradek_broker.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)
from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import BrokerId

EVERYTHING = (
    FeatureLevelRecord("metadata.version", 30),
    broker(1, 3),
    broker(2, 4),
    TopicRecord("a", A),
    partition(A, 0, 1, 2),
    partition(A, 1, 2, 1),
    PartitionChangeRecord(0, A, isr=ids(1), leader=BrokerId(1), leader_recovery_state=1),
    PartitionChangeRecord(1, A, eligible_leader_replicas=ids(1), isr=ids(2)),
    TopicRecord("b", B),
    partition(B, 0),
    config("retention.ms", "5"),
    ConfigRecord(ResourceType.BROKER, "", "log.retention.ms", "7"),
    ProducerIdsRecord(BrokerId(1), 3, 1000),
)


def publisher() -> tuple[MetadataPublisher, list[tuple[MetadataDelta, int]]]:
    found = MetadataPublisher(BrokerId(1), Settings())
    heard: list[tuple[MetadataDelta, int]] = []
    found.subscribe(lambda delta, epoch: heard.append((delta, epoch)))
    return found, heard


def same(one: MetadataImage, other: MetadataImage) -> bool:
    topics = [
        {name: (t.id, dict(t.partitions)) for name, t in image.topics.items()}
        for image in (one, other)
    ]
    return topics[0] == topics[1] and all(
        getattr(one, name) == getattr(other, name)
        for name in ("brokers", "configs", "features", "next_producer_id")
    )


class TestSnapshotRecords:
    def test_replayed_they_give_an_equal_image(self) -> None:
        image = replayed(EMPTY_IMAGE, *EVERYTHING).after
        encoded = [encode_record(record) for record in records_of(image)]
        again = replayed(EMPTY_IMAGE, *map(decode_record, encoded)).after
        assert same(image, again)

    def test_an_empty_image_has_none(self) -> None:
        assert list(records_of(EMPTY_IMAGE)) == []


class TestPublisher:
    def test_in_order_with_the_epoch_of_their_controller(self) -> None:
        metadata, heard = publisher()
        metadata.replay(topic("a", A), 10, 3)
        metadata.replay(topic("b", B), 12, 4)
        assert [(delta.after.offset, epoch) for delta, epoch in heard] == [(10, 3), (12, 4)]
        assert metadata.controller_epoch == 4
        assert heard[1][0].before is heard[0][0].after

    def test_a_snapshot_is_published_as_its_difference(self) -> None:
        """1. topics a and b are known; 2. a snapshot knows of b, changed, and of c."""
        metadata, heard = publisher()
        metadata.replay((*topic("a", A), *topic("b", B, 2), config("x", "1")), 10, 3)
        change = PartitionChangeRecord(1, B, leader=BrokerId(1))
        after = replayed(metadata.image, RemoveTopicRecord(A), change, broker(7, 20)).after
        metadata.load(records_of(after), 30, 5)
        delta, epoch = heard[-1]
        assert (epoch, metadata.image.offset) == (5, 30)
        assert same(metadata.image, after)
        assert [t.name for t in delta.deleted_topics.values()] == ["a"]
        (changed,) = delta.changed_partitions()
        assert (changed.topic.name, changed.partition) == ("b", 1)
        assert changed.before is not None
        assert (changed.before.leader_epoch, changed.after.leader_epoch) == (0, 1)
        assert delta.changed_brokers == {7}
        assert {resource.name for resource in delta.changed_configs} == {"a"}

    def test_from_nothing_everything_is_new(self) -> None:
        image = replayed(EMPTY_IMAGE, *EVERYTHING).after
        delta = MetadataDelta.between(EMPTY_IMAGE, image)
        found = {(c.topic.name, c.partition, c.before) for c in delta.changed_partitions()}
        assert found == {("a", 0, None), ("a", 1, None), ("b", 0, None)}
        assert delta.broker_config_changed(BrokerId(1))
        assert not list(MetadataDelta.between(image, image).changed_partitions())

    def test_random_histories_end_where_their_snapshot_does(self) -> None:
        for seed in range(50):
            rng = Random(seed)
            records: list[Any] = list(EVERYTHING)
            if rng.random() < 0.5:
                records.append(RemoveTopicRecord(rng.choice((A, B))))
            cut = rng.randint(3, len(records))
            follower, _ = publisher()
            follower.replay(records[:cut], cut - 1, 1)
            leader = replayed(EMPTY_IMAGE, *records).after
            follower.load(records_of(leader), len(records) - 1, 1)
            assert same(follower.image, leader), seed

    def test_waiting_for_an_image(self) -> None:
        async def story() -> None:
            metadata, _ = publisher()
            knows = lambda image: "a" in image.topics  # noqa: E731
            assert not await metadata.wait_until(knows, 1)
            waiting = asyncio.ensure_future(metadata.wait_until(knows, 10_000))
            await asyncio.sleep(0)
            metadata.replay(topic("b", B), 1, 1)
            assert not waiting.done()
            metadata.replay(topic("a", A), 3, 1)
            assert await waiting
            assert await metadata.wait_until(knows, 0)

        asyncio.run(story())
