"""The small admin APIs, in every version that they offer."""

from typing import Any
from uuid import UUID

import pytest

from broker_tests.controller.support import create, new_topic
from broker_tests.handlers.admin_support import AdminClient, with_client
from broker_tests.manual_clock import ManualClock
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.handlers import (
    alter_configs,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_log_dirs,
    describe_user_scram_credentials,
    find_coordinator,
    incremental_alter_configs,
    list_partition_reassignments,
    metadata,
)
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.manager import LogManager
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.struct import Struct


@pytest.mark.parametrize("version", create_topics.VERSIONS)
def test_create_topics(version: int) -> None:
    async def story(client: AdminClient) -> None:
        asked = [new_topic("a", 2), new_topic("b/")]
        answer = await client.ask(create_topics, version, topics=asked, timeout=1000)
        assert [t.error_code for t in answer.topics] == [
            ErrorCode.none,
            ErrorCode.invalid_topic_exception,
        ]
        if version >= 5:
            assert len(answer.topics[0].configs) == 33
        if version == 7:
            assert answer.topics[0].topic_id == client.controller.image.topics["a"].id

    with_client(story)


@pytest.mark.parametrize("version", delete_topics.VERSIONS)
def test_delete_topics(version: int) -> None:
    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("a")))
        asked: dict[str, Any] = {"topic_names": ["a"]}
        if version >= 6:
            topic_id = client.controller.image.topics["a"].id
            asked = {"topics": [Struct(name=None, topic_id=topic_id)]}
        answer = await client.ask(delete_topics, version, timeout=1000, **asked)
        assert [(t.name, t.error_code) for t in answer.responses] == [("a", ErrorCode.none)]
        assert client.controller.image.topics == {}

    with_client(story)


@pytest.mark.parametrize("version", delete_topics.VERSIONS)
def test_delete_topics_where_it_is_forbidden(version: int) -> None:
    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("a")))
        asked: dict[str, Any] = {"topic_names": ["a"]}
        if version >= 6:
            asked = {"topics": [Struct(name="a", topic_id=None)]}
        answer = await client.ask(delete_topics, version, timeout=1000, **asked)
        expected = ErrorCode.topic_deletion_disabled if version >= 3 else ErrorCode.invalid_request
        assert answer.responses[0].error_code is expected
        assert list(client.controller.image.topics) == ["a"]

    with_client(story, {"delete.topic.enable": "false"})


@pytest.mark.parametrize("version", create_partitions.VERSIONS)
def test_create_partitions(version: int) -> None:
    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("a")))
        asked = [Struct(name="a", count=3, assignments=None)]
        await client.ask(
            create_partitions, version, topics=asked, timeout=1000, validate_only=False
        )
        assert len(client.controller.image.topics["a"].partitions) == 3

    with_client(story)


@pytest.mark.parametrize("version", find_coordinator.VERSIONS)
def test_the_first_find_coordinator_creates_the_internal_topic(version: int) -> None:
    async def story(client: AdminClient) -> None:
        if version < 4:
            answer = await client.ask(find_coordinator, version, key="g")
        else:
            whole = await client.ask(find_coordinator, version, key_type=0, coordinator_keys=["g"])
            (answer,) = whole.coordinators
        assert answer.error_code is ErrorCode.none
        image = client.controller.image
        topic = image.topics["__consumer_offsets"]
        assert len(topic.partitions) == 5
        # One broker, and no setting asks for three replicas.
        assert all(len(p.replicas) == 1 for p in topic.partitions.values())
        assert image.topic_config("__consumer_offsets")["cleanup.policy"] == "compact"
        assert answer.node_id == topic.partitions[partition_for("g", 5)].leader

    with_client(story, {"offsets.topic.num.partitions": "5"})


def test_an_isolated_broker_does_not_call_itself_a_coordinator() -> None:
    async def story(client: AdminClient) -> None:
        await client.ask(find_coordinator, 6, key_type=0, coordinator_keys=["g"])
        assert client.disconnected == []
        client.leads_isolated = True
        await client.ask(find_coordinator, 6, key_type=0, coordinator_keys=["g"])
        assert len(client.disconnected) == 1

    with_client(story, {"offsets.topic.num.partitions": "5"})


def test_no_coordinator_where_its_topic_cannot_have_the_replicas_that_were_asked_for() -> None:
    async def story(client: AdminClient) -> None:
        answer = await client.ask(find_coordinator, 6, key_type=0, coordinator_keys=["g", "h"])
        codes = [one.error_code for one in answer.coordinators]
        assert codes == [ErrorCode.coordinator_not_available] * 2
        assert not client.controller.image.topics

    with_client(story, {"offsets.topic.replication.factor": "3"})


@pytest.mark.parametrize("version", describe_acls.VERSIONS)
def test_acls(version: int) -> None:
    async def story(client: AdminClient) -> None:
        acl_filter = Struct(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        creation = Struct(
            resource_type=2,
            resource_name="t",
            resource_pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )
        described = await client.ask(describe_acls, version, **vars(acl_filter))
        deleted = await client.ask(delete_acls, version, filters=[acl_filter])
        created = await client.ask(create_acls, version, creations=[creation])
        for answer in (described, deleted.filter_results[0], created.results[0]):
            assert answer.error_code is ErrorCode.security_disabled

    with_client(story)


def test_listings_of_a_new_cluster_are_empty() -> None:
    async def story(client: AdminClient) -> None:
        moving = await client.ask(list_partition_reassignments, 0, timeout=1000, topics=None)
        assert moving.topics == []
        quotas = await client.ask(describe_client_quotas, 1, components=[], strict=False)
        assert quotas.entries == []
        users = await client.ask(describe_user_scram_credentials, 0, users=[Struct(name="bob")])
        assert users.results[0].error_code is ErrorCode.resource_not_found

    with_client(story)


@pytest.mark.parametrize("version", describe_log_dirs.VERSIONS)
def test_log_dirs(version: int) -> None:
    async def story(client: AdminClient) -> None:
        clock = ManualClock()
        client.logs = LogManager(["/one", "/two"], SimDisk(), clock)
        for index in range(3):
            client.logs.get_or_create(TopicPartition("a", index), UUID(int=7), LogConfig())
        answer = await client.ask(describe_log_dirs, version, topics=None)
        assert sorted(directory.log_dir for directory in answer.results) == ["/one", "/two"]
        found = [
            (topic.name, partition.partition_index)
            for directory in answer.results
            for topic in directory.topics
            for partition in topic.partitions
        ]
        assert sorted(found) == [("a", 0), ("a", 1), ("a", 2)]
        one = await client.ask(
            describe_log_dirs, version, topics=[Struct(topic="a", partitions=[1])]
        )
        assert sum(len(topic.partitions) for d in one.results for topic in d.topics) == 1

    with_client(story)


def test_a_failed_metadata_log_is_an_error_per_item() -> None:
    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("a")))
        client.controller._log.failure = LogDirError("/data")  # type: ignore[attr-defined]
        resource = Struct(
            resource_type=2,
            resource_name="a",
            configs=[Struct(name="flush.ms", config_operation=0, value="1")],
        )
        more = [Struct(name="a", count=3, assignments=None)]
        storage = ErrorCode.kafka_storage_error
        for version in (2, 7):
            answer = await client.ask(create_topics, version, topics=[new_topic("b")], timeout=1)
            assert [(t.name, t.error_code) for t in answer.topics] == [("b", storage)]
        answer = await client.ask(delete_topics, 4, topic_names=["a"], timeout=1)
        assert [(t.name, t.error_code) for t in answer.responses] == [("a", storage)]
        answer = await client.ask(create_partitions, 3, topics=more, timeout=1)
        assert [(t.name, t.error_code) for t in answer.results] == [("a", storage)]
        for module, version in ((incremental_alter_configs, 1), (alter_configs, 2)):
            if module is alter_configs:
                resource.configs = [Struct(name="flush.ms", value="1")]
            answer = await client.ask(module, version, resources=[resource])
            assert [(r.resource_name, r.error_code) for r in answer.responses] == [("a", storage)]
        asked = [Struct(name="new", topic_id=None)]
        answer = await client.ask(metadata, 13, topics=asked, allow_auto_topic_creation=True)
        unknown = ErrorCode.unknown_topic_or_partition  # as in Kafka: the client asks again
        assert [(t.name, t.error_code) for t in answer.topics] == [("new", unknown)]

    with_client(story)
