"""The APIs by which brokers and operators reach the controller, in every version."""

from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from broker_tests.controller.support import DIRECTORY, create, new_topic
from broker_tests.handlers.admin_support import AdminClient, with_client
from odradek_broker.handlers import (
    allocate_producer_ids,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)
from odradek_broker.handlers.forwarding import ControllerMovedError
from odradek_broker.metadata.features import SUPPORTED_FEATURES
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct

FEATURES = [
    Struct(
        name=feature.name,
        min_supported_version=feature.min_supported_version,
        max_supported_version=feature.max_supported_version,
    )
    for feature in SUPPORTED_FEATURES
]


def registration(**changes: Any) -> dict[str, Any]:
    fields = {
        "broker_id": 2,
        "cluster_id": "cluster",
        "incarnation_id": UUID(int=5),
        "listeners": [Struct(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        "features": FEATURES,
        "rack": "a",
        "log_dirs": [UUID(int=900)],
        "previous_broker_epoch": -1,
    }
    return {**fields, **changes}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_broker_registers_and_is_unfenced(version: int) -> None:
    async def story(client: AdminClient) -> None:
        answer = await client.ask(broker_registration, version, **registration())
        assert answer.error_code == 0
        broker = client.controller.image.brokers[BrokerId(2)]
        assert broker.epoch == answer.broker_epoch
        assert broker.fenced
        for beat in broker_heartbeat.VERSIONS:
            heard = await client.ask(
                broker_heartbeat,
                beat,
                broker_id=2,
                broker_epoch=answer.broker_epoch,
                current_metadata_offset=answer.broker_epoch,
                want_fence=False,
                want_shut_down=False,
            )
            assert (heard.error_code, heard.is_fenced, heard.is_caught_up) == (0, False, True)
        assert not client.controller.image.brokers[BrokerId(2)].fenced

    with_client(story)


@pytest.mark.parametrize("version", [0, 1])
def test_a_registration_without_directories_is_refused(version: int) -> None:
    async def story(client: AdminClient) -> None:
        with pytest.raises(KafkaError) as caught:
            await client.ask(broker_registration, version, **registration())
        assert caught.value.code is ErrorCode.invalid_registration

    with_client(story)


def proposal(client: AdminClient, version: int) -> dict[str, Any]:
    topic = client.controller.image.topics["t"]
    epoch = client.controller.image.brokers[BrokerId(1)].epoch
    partition = Struct(
        partition_index=0, leader_epoch=0, partition_epoch=0, leader_recovery_state=0
    )
    if version < 3:
        partition.new_isr = [1]
    else:
        partition.new_isr_with_epochs = [Struct(broker_id=1, broker_epoch=epoch)]
    topics = [Struct(topic_id=topic.id, partitions=[partition])]
    return {"broker_id": 1, "broker_epoch": epoch, "topics": topics}


@pytest.mark.parametrize("version", alter_partition.VERSIONS)
def test_alter_partition(version: int) -> None:
    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("t")))
        answer = await client.ask(alter_partition, version, **proposal(client, version))
        partition = answer.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id, list(partition.isr)) == (0, 1, [1])

    with_client(story)


def test_producer_ids_for_brokers() -> None:
    async def story(client: AdminClient) -> None:
        epoch = client.controller.image.brokers[BrokerId(1)].epoch
        first = await client.ask(allocate_producer_ids, 0, broker_id=1, broker_epoch=epoch)
        second = await client.ask(allocate_producer_ids, 0, broker_id=1, broker_epoch=epoch)
        assert first.producer_id_len == 1000
        assert second.producer_id_start == first.producer_id_start + 1000
        with pytest.raises(KafkaError) as caught:
            await client.ask(allocate_producer_ids, 0, broker_id=1, broker_epoch=epoch + 1)
        assert caught.value.code is ErrorCode.stale_broker_epoch

    with_client(story)


def test_directories_of_replicas() -> None:
    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("t")))
        topic = client.controller.image.topics["t"]
        answer = await client.ask(
            assign_replicas_to_dirs,
            0,
            broker_id=1,
            broker_epoch=client.controller.image.brokers[BrokerId(1)].epoch,
            directories=[
                Struct(
                    id_=DIRECTORY,
                    topics=[Struct(topic_id=topic.id, partitions=[Struct(partition_index=0)])],
                )
            ],
        )
        assert answer.directories[0].topics[0].partitions[0].error_code == 0

    with_client(story)


@pytest.mark.parametrize("version", alter_partition_reassignments.VERSIONS)
def test_moves(version: int) -> None:
    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("t")))
        await client.ask(broker_registration, 4, **registration())
        answer = await client.ask(
            alter_partition_reassignments,
            version,
            timeout=1000,
            topics=[Struct(name="t", partitions=[Struct(partition_index=0, replicas=[2])])],
        )
        assert answer.responses[0].partitions[0].error_code == 0
        found = await client.ask(list_partition_reassignments, 0, timeout=1000, topics=None)
        moving = found.topics[0].partitions[0]
        assert list(moving.replicas) == [2, 1]
        assert (list(moving.adding_replicas), list(moving.removing_replicas)) == ([2], [1])

    with_client(story)


@pytest.mark.parametrize("version", elect_leaders.VERSIONS)
def test_elections(version: int) -> None:
    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("t")))
        asked = [Struct(topic="t", partitions=[0])]
        fields: dict[str, Any] = {"topic_partitions": asked, "timeout": 1000}
        if version:
            fields["election_type"] = 0
        answer = await client.ask(elect_leaders, version, **fields)
        found = answer.replica_election_results[0].partition_result[0]
        assert ErrorCode(found.error_code) is ErrorCode.election_not_needed

    with_client(story)


@pytest.mark.parametrize("version", update_features.VERSIONS)
def test_features(version: int) -> None:
    async def story(client: AdminClient) -> None:
        update = Struct(feature="metadata.version", max_version_level=30)
        answer = await client.ask(update_features, version, timeout=1000, feature_updates=[update])
        assert answer.error_code == 0
        update.max_version_level = 31
        answer = await client.ask(update_features, version, timeout=1000, feature_updates=[update])
        assert ErrorCode(answer.error_code) is ErrorCode.invalid_update_version

    with_client(story)


BROKER_ONLY = {
    alter_partition: {"broker_id": 1, "broker_epoch": 1, "topics": []},
    broker_registration: registration(),
    broker_heartbeat: {
        "broker_id": 1,
        "broker_epoch": 1,
        "current_metadata_offset": 1,
        "want_fence": False,
        "want_shut_down": False,
    },
    allocate_producer_ids: {"broker_id": 1, "broker_epoch": 1},
    assign_replicas_to_dirs: {"broker_id": 1, "broker_epoch": 1, "directories": []},
}
FOR_OPERATORS: dict[Any, dict[str, Any]] = {
    elect_leaders: {"timeout": 1000, "election_type": 0, "topic_partitions": None},
    alter_partition_reassignments: {"timeout": 1000, "topics": []},
    unregister_broker: {"broker_id": 1},
    update_features: {"timeout": 1000, "feature_updates": []},
}


@pytest.mark.parametrize("module", BROKER_ONLY, ids=lambda m: m.__name__.split(".")[-1])
def test_only_brokers_may_ask(module: ModuleType) -> None:
    """That is, only on the listener that they use."""

    async def story(client: AdminClient) -> None:
        client.listener = "EXTERNAL"
        with pytest.raises(KafkaError) as caught:
            await client.ask(module, module.VERSIONS[-1], **BROKER_ONLY[module])
        assert caught.value.code is ErrorCode.cluster_authorization_failed

    with_client(story)


@pytest.mark.parametrize(
    "module", [*BROKER_ONLY, *FOR_OPERATORS], ids=lambda m: m.__name__.split(".")[-1]
)
def test_an_inactive_controller_refuses_requests(module: ModuleType) -> None:
    async def story(client: AdminClient) -> None:
        client.controller.resign()
        if module in FOR_OPERATORS:  # the request is forwarded to the active controller
            with pytest.raises(ControllerMovedError):
                await client.ask(module, module.VERSIONS[-1], **FOR_OPERATORS[module])
            return
        with pytest.raises(KafkaError) as caught:
            await client.ask(module, module.VERSIONS[-1], **BROKER_ONLY[module])
        assert caught.value.code is ErrorCode.not_controller

    with_client(story)
