"""Metadata answers that are encoded once are byte for byte those that are encoded each time."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_tests.controller.support import after, cluster, partition_record
from odradek_broker.handlers import metadata, metadata_cache
from odradek_broker.handlers.cluster_view import TOPIC_OPERATIONS, ClusterView, is_internal
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.metadata_cache import MetadataCache, Shape
from odradek_broker.metadata.image import MetadataImage, TopicImage
from odradek_broker.metadata.records import PartitionChangeRecord, TopicRecord
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.api import encode_response
from odradek_protocol.messages.struct import Struct


def context(image: MetadataImage, cache: MetadataCache, version: int, listener: str) -> Any:
    return SimpleNamespace(
        api_version=version,
        listener=listener,
        broker=SimpleNamespace(
            node_id=1,
            cluster_id="cluster",
            controller=SimpleNamespace(image=image),
            quorum=SimpleNamespace(leader=SimpleNamespace(leader_id=1)),
            metadata_cache=cache,
            authorizer=None,
        ),
    )


def ask(
    image: MetadataImage, cache: MetadataCache, version: int, listener: str, ops: bool
) -> bytes:
    ctx = context(image, cache, version, listener)
    request = Struct(
        topics=None if version else [],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=ops,
        include_cluster_authorized_operations=False,
    )
    answer = asyncio.run(metadata.handle(ctx, request))
    return encode_response(metadata.API_KEY, version, answer)


def each_time(image: MetadataImage, version: int, listener: str, ops: bool) -> bytes:
    """The same answer without anything encoded before: as it was built once."""
    ctx = context(image, MetadataCache(), version, listener)
    view = ClusterView(ctx)
    topics = []
    for topic in image.topics.values():
        answer = Struct(
            error_code=ErrorCode.none,
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=[
                metadata._partition(ctx, view, index, partition)
                for index, partition in topic.partitions.items()
            ],
        )
        if ops:
            answer.topic_authorized_operations = TOPIC_OPERATIONS
        topics.append(answer)
    request = Struct(include_cluster_authorized_operations=False)
    response = metadata._response(ctx, view, topics, request)  # type: ignore[arg-type]
    return encode_response(metadata.API_KEY, version, response)


def image_of(sizes: Mapping[str, int], fenced: tuple[int, ...] = ()) -> MetadataImage:
    image = cluster({1: None, 2: "a", 3: "b"}, fenced)
    for number, (name, partitions) in enumerate(sizes.items(), 1):
        topic_id = UUID(int=number)
        records: list[Any] = [TopicRecord(name, topic_id)]
        for index in range(partitions):
            replicas = [index % 3 + 1, (index + 1) % 3 + 1]
            records.append(partition_record(topic_id, index, replicas))
        image = after(image, records)
    return image


@pytest.mark.parametrize("version", metadata.VERSIONS)
@pytest.mark.parametrize("ops", [False, True])
def test_every_version(version: int, ops: bool) -> None:
    cache = MetadataCache()
    image = image_of({"a": 3, "b": 1, "__consumer_offsets": 2})
    for _ in range(2):
        assert ask(image, cache, version, "PLAINTEXT", ops) == each_time(
            image, version, "PLAINTEXT", ops
        )


names = st.text("abc_", min_size=1, max_size=4)


@settings(deadline=None)
@given(
    st.dictionaries(names, st.integers(1, 5), max_size=4),
    st.lists(
        st.one_of(
            st.tuples(st.just("isr"), st.integers(0, 3), st.integers(0, 4)),
            st.tuples(st.just("fence"), st.integers(1, 3), st.just(0)),
            st.tuples(st.just("ask"), st.sampled_from(metadata.VERSIONS), st.booleans()),
        ),
        max_size=12,
    ),
)
def test_cached_answers_equal_fresh_ones_after_any_change(
    sizes: dict[str, int], steps: list[tuple[str, int, int]]
) -> None:
    cache, image = MetadataCache(), image_of(sizes)
    for what, first, second in steps:
        if what == "isr" and image.topics:
            topic = list(image.topics.values())[first % len(image.topics)]
            index = second % len(topic.partitions)
            leader = topic.partitions[index].leader
            if leader > 0:
                change = PartitionChangeRecord(index, topic.id, isr=(BrokerId(leader),))
                image = after(image, [change])
        elif what == "fence":
            image = image_of(sizes, (first,))
        elif what == "ask":
            for listener in ("PLAINTEXT", "OTHER"):
                got = ask(image, cache, first, listener, bool(second))
                assert got == each_time(image, first, listener, bool(second))


def test_a_topic_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, image = MetadataCache(), image_of({"a": 3, "b": 2})
    encoded: list[str] = []
    encode = metadata._encode_topic

    async def counted(
        ctx: RequestContext, view: ClusterView, shape: Shape, topic: TopicImage, began_ns: int
    ) -> bytes:
        encoded.append(topic.name)
        return await encode(ctx, view, shape, topic, began_ns)

    monkeypatch.setattr(metadata, "_encode_topic", counted)
    for _ in range(3):
        ask(image, cache, 12, "PLAINTEXT", False)
    assert encoded == ["a", "b"]
    topic_id = image.topics["a"].id
    image = after(image, [PartitionChangeRecord(0, topic_id, isr=(BrokerId(1),))])
    ask(image, cache, 12, "PLAINTEXT", False)
    assert encoded == ["a", "b", "a"], "only what changed"


def test_it_stays_within_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_cache, "CACHE_BYTES_MAX", 500)
    cache, image = MetadataCache(), image_of({f"topic-{i}": 3 for i in range(20)})
    for version in metadata.VERSIONS:
        got = ask(image, cache, version, "PLAINTEXT", False)
        assert got == each_time(image, version, "PLAINTEXT", False)
        assert cache.bytes <= 500


def test_entries_of_deleted_topics_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_cache, "OUTDATED_MAX", 2)
    cache = MetadataCache()
    shape = Shape(12, "PLAINTEXT", False)
    brokers = image_of({}).brokers
    for number in range(10):
        made = image_of({f"t{number}": 1})
        image = MetadataImage(brokers=brokers, topics=made.topics, topics_by_id=made.topics_by_id)
        known = cache.encoded(image, shape)
        assert len(known) <= 4
        (topic,) = image.topics.values()
        cache.add(image, shape, topic, b"12345")
    assert cache.bytes <= 25


def test_a_hundred_requests_at_once_share_one_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, image = MetadataCache(), image_of({"a": 600})
    encoded: list[str] = []
    encode = metadata._encode_topic

    async def counted(
        ctx: RequestContext, view: ClusterView, shape: Shape, topic: TopicImage, began_ns: int
    ) -> bytes:
        encoded.append(topic.name)
        await asyncio.sleep(0)
        return await encode(ctx, view, shape, topic, began_ns)

    monkeypatch.setattr(metadata, "_encode_topic", counted)

    async def story() -> None:
        request = Struct(
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        )
        ctx = context(image, cache, 12, "PLAINTEXT")
        await asyncio.gather(*(metadata.handle(ctx, request) for _ in range(100)))

    asyncio.run(story())
    assert encoded == ["a"]
