"""Metadata, DescribeCluster, DescribeTopicPartitions: what clients see of the image."""

from uuid import UUID

import pytest

from broker_tests.controller.support import cluster, create, new_topic
from broker_tests.handlers.admin_support import AdminClient, with_client
from odradek_broker.handlers import describe_cluster, describe_topic_partitions, metadata
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct
from odradek_testkit.work import Steps, grows_linearly


def by_name(*names: str) -> list[Struct]:
    return [Struct(name=name, topic_id=None) for name in names]


class TestMetadata:
    @pytest.mark.parametrize("version", metadata.VERSIONS)
    def test_every_version(self, version: int) -> None:
        async def story(client: AdminClient) -> None:
            await client.controller.create_topics(create(new_topic("a", 2)))
            answer = await client.ask(metadata, version, topics=by_name("a"))
            (broker,) = answer.brokers
            assert (broker.node_id, broker.host, broker.port) == (1, "localhost", 9092)
            (topic,) = answer.topics
            assert (topic.name, topic.error_code) == ("a", ErrorCode.none)
            found = [(p.partition_index, p.leader_id, p.replica_nodes) for p in topic.partitions]
            assert found == [(0, 1, [1]), (1, 1, [1])]

        with_client(story)

    def test_all_topics_and_none(self) -> None:
        async def story(client: AdminClient) -> None:
            await client.controller.create_topics(create(new_topic("a"), new_topic("b")))
            everything = await client.ask(metadata, 13, topics=None)
            assert [t.name for t in everything.topics] == ["a", "b"]
            assert (await client.ask(metadata, 13, topics=[])).topics == []
            in_v0 = await client.ask(metadata, 0, topics=[])
            assert [t.name for t in in_v0.topics] == ["a", "b"]

        with_client(story)

    def test_by_id(self) -> None:
        async def story(client: AdminClient) -> None:
            await client.controller.create_topics(create(new_topic("a")))
            topic_id = client.controller.image.topics["a"].id
            asked = [Struct(name=None, topic_id=i) for i in (topic_id, UUID(int=9))]
            known, unknown = (await client.ask(metadata, 12, topics=asked)).topics
            assert (known.name, known.topic_id) == ("a", topic_id)
            assert (unknown.name, unknown.error_code) == (None, ErrorCode.unknown_topic_id)

        with_client(story)

    def test_a_missing_topic_is_created_if_client_and_brokers_allow_it(self) -> None:
        async def story(client: AdminClient) -> None:
            asked = {"topics": by_name("new"), "allow_auto_topic_creation": False}
            refused = await client.ask(metadata, 13, **asked)
            assert refused.topics[0].error_code is ErrorCode.unknown_topic_or_partition
            asked["allow_auto_topic_creation"] = True
            made = await client.ask(metadata, 13, **asked)
            assert made.topics[0].error_code is ErrorCode.none
            assert len(made.topics[0].partitions) == 3

        with_client(story, {"num.partitions": "3"})

    def test_does_not_create_where_the_broker_forbids_it(self) -> None:
        async def story(client: AdminClient) -> None:
            answer = await client.ask(
                metadata, 13, topics=by_name("new"), allow_auto_topic_creation=True
            )
            assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition
            assert client.controller.image.topics == {}

        with_client(story, {"auto.create.topics.enable": "false"})

    def test_a_refused_creation_is_an_unknown_topic_and_a_line_in_the_log(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def story(client: AdminClient) -> None:
            answer = await client.ask(
                metadata, 13, topics=by_name("new", "a/b"), allow_auto_topic_creation=True
            )
            assert [t.error_code for t in answer.topics] == [
                ErrorCode.unknown_topic_or_partition,
                ErrorCode.invalid_topic_exception,
            ]

        with_client(story, {"default.replication.factor": "3"})
        (line,) = caplog.messages
        assert "topics new were not created: invalid_replication_factor" in line

    def test_partitions_whose_leader_cannot_be_reached(self) -> None:
        async def story(client: AdminClient) -> None:
            image = cluster({1: None, 2: None}, fenced=[2])
            active = client.controller._active
            assert active is not None
            client.controller._metadata.image = active.latest = image
            topic = new_topic("a", assignments={0: [1, 2], 1: [2, 1]})
            await client.controller.create_topics(create(topic))
            answer = await client.ask(metadata, 13, topics=by_name("a"))
            assert [b.node_id for b in answer.brokers] == [1]
            first = answer.topics[0].partitions[0]
            assert (first.leader_id, first.offline_replicas) == (1, [2])
            client.listener = "OTHER"
            for version, code in (
                (13, ErrorCode.listener_not_found),
                (5, ErrorCode.leader_not_available),
            ):
                answer = await client.ask(metadata, version, topics=by_name("a"))
                partition = answer.topics[0].partitions[0]
                assert (partition.error_code, partition.leader_id) == (code, -1)

        with_client(story)

    def test_twice_as_many_partitions_are_twice_the_work(self) -> None:
        """To create them, and to describe them all."""
        creating: list[Steps] = []
        describing: list[Steps] = []
        for topics in (10, 20):

            async def story(client: AdminClient, topics: int = topics) -> None:
                wanted = create(*(new_topic(f"t{i}", 100) for i in range(topics)))
                with Steps() as steps:
                    await client.controller.create_topics(wanted)
                creating.append(steps)
                with Steps() as steps:
                    answer = await client.ask(metadata, 13, topics=None)
                describing.append(steps)
                assert sum(len(t.partitions) for t in answer.topics) == topics * 100

            with_client(story)
        grows_linearly(creating[0], creating[1])
        grows_linearly(describing[0], describing[1])


class TestDescribeCluster:
    @pytest.mark.parametrize("version", describe_cluster.VERSIONS)
    def test_every_version(self, version: int) -> None:
        async def story(client: AdminClient) -> None:
            answer = await client.ask(
                describe_cluster, version, include_cluster_authorized_operations=True
            )
            assert (answer.cluster_id, answer.controller_id) == ("cluster", 1)
            assert [(b.broker_id, b.host) for b in answer.brokers] == [(1, "localhost")]
            assert answer.cluster_authorized_operations == 8096

        with_client(story)

    def test_fenced_brokers_only_on_request(self) -> None:
        async def story(client: AdminClient) -> None:
            client.controller._metadata.image = cluster({1: "a", 2: "b"}, fenced=[2])
            answer = await client.ask(describe_cluster, 2, include_fenced_brokers=True)
            assert [(b.broker_id, b.rack, b.is_fenced) for b in answer.brokers] == [
                (1, "a", False),
                (2, "b", True),
            ]
            answer = await client.ask(describe_cluster, 2, include_fenced_brokers=False)
            assert [b.broker_id for b in answer.brokers] == [1]

        with_client(story)


class TestDescribeTopicPartitions:
    def test_pages_give_everything_once(self) -> None:
        async def story(client: AdminClient) -> None:
            sizes = {"a": 5, "b": 1, "c": 7}
            await client.controller.create_topics(
                create(*(new_topic(name, size) for name, size in sizes.items()))
            )
            for limit in (1, 2, 3, 5, 6, 13, 100):
                found = await self.walk(client, limit)
                assert found == [(name, i) for name, size in sizes.items() for i in range(size)]

        with_client(story)

    async def walk(self, client: AdminClient, limit: int) -> list[tuple[str, int]]:
        found, cursor = [], None
        while True:
            page = await client.ask(
                describe_topic_partitions,
                0,
                topics=[],
                response_partition_limit=limit,
                cursor=cursor,
            )
            new = [(t.name, p.partition_index) for t in page.topics for p in t.partitions]
            assert len(new) <= limit
            found += new
            cursor = page.next_cursor
            if cursor is None:
                return found

    def test_the_broker_limits_a_page(self) -> None:
        async def story(client: AdminClient) -> None:
            await client.controller.create_topics(create(new_topic("a", 5)))
            page = await client.ask(
                describe_topic_partitions,
                0,
                topics=[Struct(name="a")],
                response_partition_limit=1000,
                cursor=None,
            )
            assert len(page.topics[0].partitions) == 2
            assert page.next_cursor == Struct(topic_name="a", partition_index=2)

        with_client(story, {"max.request.partition.size.limit": "2"})
