"""The admin requests on real brokers: a cluster of ours, and Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer

from odradek_protocol.client import (
    AnyBroker,
    ApiKey,
    BrokerError,
    ClientError,
    KafkaClient,
    Struct,
)
from odradek_protocol.client.admin.brokers import (
    describe_cluster,
    unregister_broker,
    update_features,
)
from odradek_protocol.client.admin.configs import (
    ALL_BROKERS,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from odradek_protocol.client.admin.groups import (
    DEAD,
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    delete_groups,
    describe_group,
    list_groups,
)
from odradek_protocol.client.admin.log_dirs import describe_log_dirs
from odradek_protocol.client.admin.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from odradek_protocol.client.admin.partitions import (
    ElectionType,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from odradek_protocol.client.admin.quorum import QuorumReplica, describe_quorum, remove_voter
from odradek_protocol.client.admin.topics import (
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
)
from odradek_protocol.client.admin.transactions import (
    NOT_OPEN,
    abort_in_partition,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from odradek_protocol.ids import TopicPartition
from odradek_testkit.cluster import Cluster
from odradek_testkit.engines import RunningApacheKafka


@pytest.fixture(scope="module", params=["ours", pytest.param("apache", marks=[pytest.mark.java])])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    directory = tmp_path_factory.mktemp(request.param)
    server = Cluster(3, directory=directory) if request.param == "ours" else RunningApacheKafka(
        {"group.initial.rebalance.delay.ms": "0"}, directory=directory
    )  # fmt: skip
    with server:
        yield server.bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[KafkaClient]:
    with KafkaClient(bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(client: KafkaClient, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions, with leaders, named after the test."""
    name = request.node.originalname.removeprefix("test_")
    assert create_topics(client, [NewTopic(name, partitions=2)]) == {}
    places = [TopicPartition(name, n) for n in range(2)]
    found = list_offsets(client, places, LATEST, wait_for_topics=True)
    assert list(found.values()) == [0, 0]
    return str(name)


def until(true: Callable[[], bool]) -> None:
    """Repeats the check until it holds; pytest's time limit ends the test otherwise."""
    while not true():
        pass


def test_the_cluster(client: KafkaClient) -> None:
    found = describe_cluster(client)
    metadata = client.metadata(())
    assert found.cluster_id == metadata.cluster_id != ""
    assert {b.broker_id for b in found.brokers.values() if not b.fenced} == set(metadata.brokers)
    assert found.brokers[1].address == metadata.brokers[1].address
    with pytest.raises(BrokerError, match="BROKER_ID_NOT_REGISTERED"):
        unregister_broker(client, 77)
    quorum = describe_quorum(client)
    assert quorum.leader_id in {voter.node_id for voter in quorum.voters}
    assert quorum.high_watermark > 0
    assert "metadata.version" in client.features().finalized
    with pytest.raises(BrokerError):
        update_features(client, {"metadata.version": 9999}, validate_only=True)
    with pytest.raises(ClientError):
        remove_voter(client, QuorumReplica(99, None, -1, -1))


def test_topics(client: KafkaClient, topic: str) -> None:
    refused = create_topics(
        client, [NewTopic(topic), NewTopic("much", replication_factor=99), NewTopic("fine", 1)]
    )
    assert {name: error.name for name, error in refused.items()} == {
        topic: "TOPIC_ALREADY_EXISTS",
        "much": "INVALID_REPLICATION_FACTOR",
    }
    assert create_partitions(client, {topic: 3}) == {}
    assert create_partitions(client, {topic: 1})[topic].name == "INVALID_PARTITIONS"
    until(lambda: len(client.metadata([topic]).topics[topic].partitions) == 3)
    assert delete_topics(client, [topic]) == {}
    assert delete_topics(client, ["never"])["never"].name == "UNKNOWN_TOPIC_OR_PARTITION"
    until(lambda: topic not in client.metadata().topics)
    gone = client.metadata([topic]).topics[topic].error
    assert gone is not None
    assert gone.name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_configs(client: KafkaClient, topic: str) -> None:
    changes = [ConfigChange("retention.ms", ConfigOperation.SET, "7")]
    refused = alter_configs(client, ResourceType.TOPIC, {topic: changes, "never": changes})
    assert {name: error.name for name, error in refused.items()} == {
        "never": "UNKNOWN_TOPIC_OR_PARTITION"
    }

    def retention() -> tuple[str | None, ConfigSource]:
        names = ["retention.ms", "cleanup.policy"]
        found = describe_configs(client, ResourceType.TOPIC, [topic], names)[topic]
        assert isinstance(found, dict)
        assert found.keys() == set(names)
        return found["retention.ms"].value, found["retention.ms"].source

    until(lambda: retention() == ("7", ConfigSource.DYNAMIC_TOPIC_CONFIG))
    undo = [ConfigChange("retention.ms", ConfigOperation.DELETE)]
    assert alter_configs(client, ResourceType.TOPIC, {topic: undo}) == {}
    missing = describe_configs(client, ResourceType.TOPIC, ["never"])["never"]
    assert isinstance(missing, BrokerError)
    broker = describe_configs(client, ResourceType.BROKER, ["1"], ["node.id"])["1"]
    assert isinstance(broker, dict)
    assert (broker["node.id"].value, broker["node.id"].read_only) == ("1", True)
    wrong = [ConfigChange("log.cleaner.threads", ConfigOperation.SET, "many")]
    assert ALL_BROKERS in alter_configs(client, ResourceType.BROKER, {ALL_BROKERS: wrong})


def test_partitions(client: KafkaClient, topic: str) -> None:
    first = TopicPartition(topic, 0)
    assert elect_leaders(client, ElectionType.PREFERRED, [first]) == {}
    unknown = TopicPartition("never", 0)
    error = elect_leaders(client, ElectionType.PREFERRED, [unknown])[unknown]
    assert error is not None
    assert error.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert all(e is None for e in elect_leaders(client, ElectionType.PREFERRED, None).values())
    refused = alter_reassignments(client, {first: [99], TopicPartition(topic, 1): None})
    assert refused[first].name == "INVALID_REPLICA_ASSIGNMENT"
    assert refused[TopicPartition(topic, 1)].name == "NO_REASSIGNMENT_IN_PROGRESS"
    assert list_reassignments(client) == {}
    for directories in describe_log_dirs(client).values():
        assert not isinstance(directories, ClientError)
        (one,) = directories
        assert not one.offline
        assert 0 < one.usable_bytes <= one.total_bytes
    sizes = [d.replica_bytes for found in describe_log_dirs(client).values()
             if isinstance(found, list) for d in found]  # fmt: skip
    assert any(first in found for found in sizes)
    few = describe_log_dirs(client, with_replicas=False)
    assert all(not d.replica_bytes for found in few.values() if isinstance(found, list)
               for d in found)  # fmt: skip


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups(client: KafkaClient, bootstrap: str, topic: str, protocol: str) -> None:
    group = f"group-{protocol}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        while len(consumer.assignment()) < 2:
            consumer.poll(0.05)
        described = describe_group(client, group)
        assert (described.type, described.state) == (protocol.capitalize(), "Stable")
        (member,) = described.members
        assert member.assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        assert delete_groups(client, [group])[group].name == "NON_EMPTY_GROUP"
    finally:
        consumer.close()
    until(lambda: describe_group(client, group).state == "Empty")
    wanted = {TopicPartition(topic, 1): CommittedOffset(0, "note")}
    assert commit_offsets(client, group, wanted) == {}
    assert committed_offsets(client, group) == wanted
    (listed,) = [one for one in list_groups(client) if one.group_id == group]
    assert (listed.type, listed.state) == (protocol.capitalize(), "Empty")
    assert delete_groups(client, [group, "never"])["never"].name == "GROUP_ID_NOT_FOUND"
    assert describe_group(client, group).state == DEAD
    assert committed_offsets(client, group) == {}
    assert delete_topics(client, [topic]) == {}
    until(lambda: topic not in client.metadata().topics)


def test_transactions(client: KafkaClient, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "pay-1"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    producer.flush(30)
    place = TopicPartition(topic, 0)
    described = describe_transaction(client, "pay-1")
    assert (described.state, described.partitions) == ("Ongoing", (place,))
    assert described.start_ms > 0
    assert "pay-1" in {one.transactional_id for one in list_transactions(client, ["Ongoing"])}
    assert list_transactions(client, ["PrepareAbort"]) == []
    with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        describe_transaction(client, "never")
    (active,) = describe_producers(client, place)
    assert (active.producer_id, active.start_offset) == (described.producer_id, 0)
    committed = list_offsets(client, [place], LATEST, IsolationLevel.READ_COMMITTED)
    assert committed == {place: 0}
    assert list_offsets(client, [place], LATEST) == {place: 1}
    abort_in_partition(client, place, active)
    (active,) = describe_producers(client, place)
    assert active.start_offset == NOT_OPEN
    producer.abort_transaction(30)
    assert list_offsets(client, [place], EARLIEST) == {place: 0}
    with pytest.raises(ClientError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        describe_producers(client, TopicPartition("never", 0))


def test_the_oldest_versions_of_the_look_ups(client: KafkaClient, topic: str) -> None:
    """For brokers that offer only old versions."""
    request = Struct(topics=[Struct(name=topic)])
    answer = client.call(AnyBroker(), ApiKey.METADATA, request, max_version=0)
    assert [found.name for found in answer.topics] == [topic]
    request = Struct(key="billing", coordinator_keys=["billing"])
    answer = client.call(AnyBroker(), ApiKey.FIND_COORDINATOR, request, max_version=0)
    assert not answer.coordinators
