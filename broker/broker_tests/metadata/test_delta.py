"""Deltas between images: what records change, what images share, what subscribers get."""

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from broker_tests.broker_ids import ids
from odradek_broker.metadata.delta import MetadataDelta, ReplayError
from odradek_broker.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage
from odradek_broker.metadata.image_records import records_of
from odradek_broker.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
)
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType
from odradek_protocol.ids import BrokerId

A, B = UUID(int=1), UUID(int=2)
DIR = UUID(int=99)


def partition(topic_id: UUID, index: int, *replicas: int) -> PartitionRecord:
    brokers = ids(*replicas or (1,))
    return PartitionRecord(
        index, topic_id, brokers, brokers, (), (), brokers[0], 0, 0, (DIR,) * len(brokers)
    )


def topic(name: str, topic_id: UUID, partitions: int = 1) -> list[MetadataRecord]:
    return [TopicRecord(name, topic_id), *(partition(topic_id, i) for i in range(partitions))]


def config(name: str, value: str | None, resource: str = "a") -> ConfigRecord:
    return ConfigRecord(ResourceType.TOPIC, resource, name, value)


def broker(broker_id: int, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        BrokerId(broker_id), UUID(int=5), epoch, (), (), None, True, False, (DIR,)
    )


def replayed(before: MetadataImage, *records: MetadataRecord) -> MetadataDelta:
    delta = MetadataDelta(before)
    for record in records:
        delta.replay(record)
    delta.finish(before.offset + len(records))
    delta.after.validate()
    return delta


class TestTopics:
    def test_created_changed_deleted(self) -> None:
        created = replayed(EMPTY_IMAGE, *topic("a", A, 2))
        assert [(c.topic.name, c.partition, c.before) for c in created.changed_partitions()] == [
            ("a", 0, None),
            ("a", 1, None),
        ]
        changed = replayed(created.after, PartitionChangeRecord(1, A, leader=BrokerId(1)))
        (change,) = changed.changed_partitions()
        assert change.partition == 1
        assert change.before == created.after.topics["a"].partitions[1]
        assert (change.after.leader_epoch, change.after.partition_epoch) == (1, 1)
        deleted = replayed(changed.after, RemoveTopicRecord(A))
        assert list(deleted.changed_partitions()) == []
        assert [t.name for t in deleted.deleted_topics.values()] == ["a"]
        assert deleted.after.topics == {}

    def test_an_image_never_changes(self) -> None:
        before = replayed(EMPTY_IMAGE, *topic("a", A)).after
        replayed(
            before,
            PartitionChangeRecord(0, A, leader=BrokerId(1)),
            config("x", "1"),
            *topic("b", B),
        )
        assert before.topics["a"].partitions[0].leader_epoch == 0
        assert list(before.topics) == ["a"]
        assert before.configs == {}

    def test_unchanged_parts_of_an_image_are_shared(self) -> None:
        before = replayed(EMPTY_IMAGE, *topic("a", A), *topic("b", B)).after
        after = replayed(before, PartitionChangeRecord(0, A, leader=BrokerId(1))).after
        assert after.topics["b"] is before.topics["b"]
        assert after.brokers is before.brokers
        assert after.configs is before.configs

    def test_deleted_and_created_again_in_one_delta(self) -> None:
        before = replayed(EMPTY_IMAGE, *topic("a", A, 3), config("x", "1")).after
        delta = replayed(before, RemoveTopicRecord(A), *topic("a", B, 1))
        assert [t.id for t in delta.deleted_topics.values()] == [A]
        assert [(c.topic.id, c.partition) for c in delta.changed_partitions()] == [(B, 0)]
        assert delta.after.topics["a"].id == B
        assert delta.after.topic_config("a") == {}

    def test_created_and_deleted_in_one_delta_leaves_no_trace(self) -> None:
        delta = replayed(EMPTY_IMAGE, *topic("a", A), config("x", "1"), RemoveTopicRecord(A))
        assert list(delta.changed_partitions()) == []
        assert delta.deleted_topics == {}
        assert delta.after.topics == {}
        assert delta.after.configs == {}

    def test_partition_change_touches_only_what_it_names(self) -> None:
        image = replayed(EMPTY_IMAGE, TopicRecord("a", A), partition(A, 0, 1, 2, 3)).after
        after = replayed(image, PartitionChangeRecord(0, A, isr=ids(1, 2))).after
        found = after.topics["a"].partitions[0]
        assert (found.isr, found.leader, found.leader_epoch) == ((1, 2), 1, 0)
        assert found.replicas == (1, 2, 3)
        assert found.partition_epoch == 1

    @pytest.mark.parametrize(
        "record",
        [
            TopicRecord("a", B),
            RemoveTopicRecord(B),
            partition(B, 0),
            PartitionChangeRecord(0, B, leader=BrokerId(1)),
            PartitionChangeRecord(7, A, leader=BrokerId(1)),
            UnregisterBrokerRecord(BrokerId(3), 1),
            BrokerRegistrationChangeRecord(BrokerId(3), 1, fenced=-1),
            ProducerIdsRecord(BrokerId(1), 1, 0),
        ],
    )
    def test_a_record_that_does_not_fit_is_an_error(self, record: MetadataRecord) -> None:
        image = replayed(EMPTY_IMAGE, *topic("a", A)).after
        with pytest.raises(ReplayError):
            MetadataDelta(image).replay(record)


class TestConfigs:
    def test_set_and_cleared(self) -> None:
        before = replayed(EMPTY_IMAGE, *topic("a", A), config("x", "1"), config("y", "2")).after
        delta = replayed(before, config("x", None), config("y", "3"))
        assert delta.after.topic_config("a") == {"y": "3"}
        assert list(delta.changed_topic_configs()) == ["a"]
        assert replayed(delta.after, config("y", None)).after.configs == {}

    def test_deleting_a_topic_deletes_its_config_and_is_no_config_change(self) -> None:
        before = replayed(EMPTY_IMAGE, *topic("a", A), config("x", "1")).after
        delta = replayed(before, RemoveTopicRecord(A))
        assert delta.after.configs == {}
        assert list(delta.changed_topic_configs()) == []

    def test_broker_config_change_concerns_only_its_broker_or_all(self) -> None:
        one = replayed(EMPTY_IMAGE, ConfigRecord(ResourceType.BROKER, "1", "x", "1"))
        assert one.broker_config_changed(BrokerId(1))
        assert not one.broker_config_changed(BrokerId(2))
        everyone = replayed(one.after, ConfigRecord(ResourceType.BROKER, "", "x", "1"))
        assert everyone.broker_config_changed(BrokerId(2))
        assert everyone.after.configs[ConfigResource(ResourceType.BROKER, "1")] == {"x": "1"}


class TestBrokers:
    def test_registered_unfenced_unregistered(self) -> None:
        image = replayed(EMPTY_IMAGE, broker(1, 10), broker(2, 11)).after
        assert image.usable_brokers() == []
        image = replayed(image, BrokerRegistrationChangeRecord(BrokerId(1), 10, fenced=-1)).after
        assert [b.id for b in image.usable_brokers()] == [1]
        delta = replayed(image, UnregisterBrokerRecord(BrokerId(1), 10))
        assert set(delta.after.brokers) == {2}
        assert delta.changed_brokers == {1}

    def test_a_change_under_an_old_epoch_is_an_error(self) -> None:
        image = replayed(EMPTY_IMAGE, broker(1, 10), broker(1, 20)).after
        with pytest.raises(ReplayError):
            replayed(image, BrokerRegistrationChangeRecord(BrokerId(1), 10, fenced=-1))


def test_features_and_producer_ids() -> None:
    image = replayed(
        EMPTY_IMAGE, FeatureLevelRecord("x", 3), ProducerIdsRecord(BrokerId(1), 1, 1000)
    ).after
    assert image.features == {"x": 3}
    assert image.next_producer_id == 1000
    assert replayed(image, FeatureLevelRecord("x", 0)).after.features == {}


def test_one_delta_or_many_make_the_same_image() -> None:
    """A restarted node replays everything in one delta, a running one batch by batch."""
    rng = Random(7)
    records: list[MetadataRecord] = []
    step_by_step = EMPTY_IMAGE
    for step in range(400):
        names = list(step_by_step.topics)
        record = _some_record(rng, step, names, step_by_step)
        batch = record if isinstance(record, list) else [record]
        records += batch
        step_by_step = replayed(step_by_step, *batch).after
    at_once = replayed(EMPTY_IMAGE, *records).after
    for name, topic_image in step_by_step.topics.items():
        assert at_once.topics[name].partitions == topic_image.partitions
    assert at_once.topics.keys() == step_by_step.topics.keys()
    assert at_once.configs == step_by_step.configs
    assert at_once.offset == step_by_step.offset


def _some_record(
    rng: Random, step: int, names: list[str], image: MetadataImage
) -> MetadataRecord | list[MetadataRecord]:
    choice = rng.randrange(5)
    if not names or choice == 0:
        name = f"t{rng.randrange(8)}"
        if name not in names:
            return topic(name, UUID(int=1000 + step), rng.randint(1, 4))
        choice = 1
    name = rng.choice(names)
    topic_id = image.topics[name].id
    if choice == 1:
        return RemoveTopicRecord(topic_id)
    if choice == 2:
        return config(f"c{rng.randrange(3)}", rng.choice(["1", "2", None]), name)
    index = rng.randrange(len(image.topics[name].partitions))
    if choice == 3:
        return PartitionChangeRecord(index, topic_id, leader=BrokerId(1))
    return partition(topic_id, len(image.topics[name].partitions))


class TestAcls:
    ONE = AccessControlEntryRecord(
        A,
        AclResource.TOPIC,
        "orders",
        PatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )

    def test_created_removed_and_in_a_snapshot(self) -> None:
        created = replayed(EMPTY_IMAGE, self.ONE)
        assert created.changed_acls == {A: self.ONE.acl}
        assert list(records_of(created.after)) == [self.ONE]
        untouched = replayed(created.after, *topic("a", A))
        assert untouched.after.acls is created.after.acls
        removed = replayed(untouched.after, RemoveAccessControlEntryRecord(A))
        assert removed.changed_acls == {A: None}
        assert removed.after.acls == removed.after.acl_ids == {}
        back = MetadataDelta.between(removed.after, created.after)
        assert back.changed_acls == {A: self.ONE.acl}

    def test_records_that_no_controller_writes_are_errors(self) -> None:
        image = replayed(EMPTY_IMAGE, self.ONE).after
        for record in (self.ONE, replace(self.ONE, id=B), RemoveAccessControlEntryRecord(B)):
            with pytest.raises(ReplayError):
                MetadataDelta(image).replay(record)
