"""Create, delete, grow: the decisions, and Kafka's error messages.

The expected texts were read off Apache Kafka 4.3.1 with the same requests.
"""

import base64
from random import Random
from typing import Any
from uuid import UUID

import pytest

from broker_tests.controller.support import after, cluster, create, delete, new_topic
from odradek_broker.controller import topics
from odradek_broker.controller.result import ControllerResult
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct

ONE_BROKER = cluster({1: None})
THREE_BROKERS = cluster({1: "a", 2: "b", 3: "c"})


def decide(image: MetadataImage, request: Struct, **settings: str) -> Any:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return topics.create_topics(image, request, Settings(named), Random(1))


def with_topics(image: MetadataImage, *asked: Struct) -> MetadataImage:
    result = decide(image, create(*asked))
    assert all(t.error_code is ErrorCode.none for t in result.response.topics)
    return after(image, result.records)


def answers(result: ControllerResult[Struct]) -> list[tuple[str, int, str | None]]:
    return [(t.name, int(t.error_code), t.error_message) for t in result.response.topics]


class TestCreate:
    def test_records_and_answer(self) -> None:
        result = decide(ONE_BROKER, create(new_topic("a", 2, configs={"retention.ms": "5"})))
        kinds = [type(record) for record in result.records]
        assert kinds == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
        first = result.records[2]
        assert (first.replicas, first.isr, first.leader) == ((1,), (1,), 1)
        assert (first.leader_epoch, first.partition_epoch) == (0, 0)
        assert first.directories == (UUID(int=101),)
        (topic,) = result.response.topics
        assert (topic.num_partitions, topic.replication_factor) == (2, 1)
        configs = {entry.name: (entry.value, entry.config_source) for entry in topic.configs}
        assert configs["retention.ms"] == ("5", 1)
        assert configs["segment.bytes"] == ("1073741824", 5)
        assert len(configs) == 33
        assert set(after(ONE_BROKER, result.records).topics) == {"a"}

    def test_defaults(self) -> None:
        request = create(new_topic("a", -1, -1))
        result = decide(THREE_BROKERS, request, num_partitions="4", default_replication_factor="3")
        partitions = after(THREE_BROKERS, result.records).topics["a"].partitions
        assert len(partitions) == 4
        assert all(len(p.replicas) == 3 for p in partitions.values())

    def test_validate_only_changes_nothing(self) -> None:
        result = decide(ONE_BROKER, create(new_topic("a"), validate_only=True))
        assert result.records == []
        assert answers(result) == [("a", 0, None)]

    def test_one_bad_topic_does_not_spoil_the_others(self) -> None:
        result = decide(ONE_BROKER, create(new_topic("a"), new_topic("b/"), new_topic("c")))
        assert set(after(ONE_BROKER, result.records).topics) == {"a", "c"}

    @pytest.mark.parametrize(
        ("topic", "code", "message"),
        [
            (new_topic(""), 17, "Topic name is invalid: the empty string is not allowed"),
            (new_topic(".."), 17, "Topic name is invalid: '..' is not allowed"),
            (
                new_topic("a b"),
                17,
                "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
                "alphanumerics, '.', '_' and '-'",
            ),
            (
                new_topic("x" * 250),
                17,
                f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max "
                "allowed length 249",
            ),
            (
                new_topic("n", 0),
                37,
                "Number of partitions was set to an invalid non-positive value.",
            ),
            (
                new_topic("n", 1, 0),
                38,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            ),
            (
                new_topic("n", 1, 2),
                38,
                "Unable to replicate the partition 2 time(s): The target replication factor of 2 "
                "cannot be reached because only 1 broker(s) are registered or some brokers have "
                "all their log directories cordoned.",
            ),
            (new_topic("n", 20_001), 44, "Excessively large number of partitions per request."),
            (
                new_topic("n", assignments={0: [2]}),
                39,
                "The manual partition assignment includes broker 2, but no such broker is "
                "registered.",
            ),
            (
                new_topic("n", assignments={0: []}),
                39,
                "The manual partition assignment includes an empty replica list.",
            ),
            (
                new_topic("n", assignments={1: [1]}),
                39,
                "partitions should be a consecutive 0-based integer sequence",
            ),
            (
                new_topic("n", assignments={0: [1, 1]}),
                39,
                "The manual partition assignment includes the broker 1 more than once.",
            ),
            (new_topic("n", configs={"nope": "1"}), 40, "Unknown topic config name: nope"),
            (
                new_topic("n", configs={"retention.ms": None}),
                40,
                "Null value not supported for topic configs: retention.ms",
            ),
            (
                new_topic("n", configs={"retention.ms": "x"}),
                40,
                "Invalid value x for configuration retention.ms: Not a number of type LONG",
            ),
            (
                new_topic("n", configs={"compression.gzip.level": "0"}),
                40,
                "Invalid value 0 for configuration compression.gzip.level: Value must be between "
                "1 and 9 or equal to -1",
            ),
            (
                new_topic("n", configs={"leader.replication.throttled.replicas": "foo"}),
                40,
                "Invalid value [foo] for configuration leader.replication.throttled.replicas: "
                "leader.replication.throttled.replicas must be the literal '*' or a list of "
                "replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            ),
            (
                new_topic(
                    "n", configs={"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}
                ),
                40,
                "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms "
                "(5)",
            ),
            (
                new_topic("n", configs={"remote.storage.enable": "true"}),
                40,
                "Tiered Storage functionality is disabled in the broker. Topic cannot be "
                "configured with remote log storage.",
            ),
            (
                new_topic("__cluster_metadata"),
                42,
                "Creation of internal topic __cluster_metadata is prohibited.",
            ),
        ],
    )
    def test_refused(self, topic: Struct, code: ErrorCode, message: str) -> None:
        result = decide(ONE_BROKER, create(topic))
        assert answers(result) == [(topic.name, code, message)]
        assert result.records == []

    def test_manual_assignment_with_numbers_too(self) -> None:
        topic = new_topic("n", assignments={0: [1]})
        topic.num_partitions = 1
        assert answers(decide(ONE_BROKER, create(topic))) == [
            (
                "n",
                42,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        ]

    def test_manual_assignment_of_uneven_length(self) -> None:
        topic = new_topic("n", assignments={0: [1, 2], 1: [3]})
        ((_, code, message),) = answers(decide(THREE_BROKERS, create(topic)))
        assert code == 39
        assert message == (
            "The manual partition assignment includes a partition with 1 replica(s), but this is "
            "not consistent with previous partitions, which have 2 replica(s)."
        )

    def test_existing_and_colliding(self) -> None:
        image = with_topics(ONE_BROKER, new_topic("a.b"))
        result = decide(image, create(new_topic("a.b"), new_topic("a_b"), new_topic("ab")))
        assert answers(result) == [
            ("a.b", 36, "Topic 'a.b' already exists."),
            ("a_b", 17, "Topic 'a_b' collides with existing topic: a.b"),
            ("ab", 0, None),
        ]

    def test_named_twice(self) -> None:
        result = decide(ONE_BROKER, create(new_topic("a"), new_topic("a", 2), new_topic("b")))
        assert answers(result) == [("b", 0, None), ("a", 42, "Duplicate topic name.")]

    def test_fenced_brokers_get_replicas_only_if_there_are_no_others(self) -> None:
        image = cluster({1: None, 2: None, 3: None}, fenced=[3])
        made = with_topics(image, new_topic("two", 6, 2), new_topic("three", 1, 3))
        assert all(3 not in p.replicas for p in made.topics["two"].partitions.values())
        three = made.topics["three"].partitions[0]
        assert sorted(three.replicas) == [1, 2, 3]
        assert sorted(three.isr) == [1, 2]

    def test_all_brokers_fenced(self) -> None:
        image = cluster({1: None}, fenced=[1])
        ((_, code, message),) = answers(decide(image, create(new_topic("a"))))
        assert code == 38
        assert message == (
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced."
        )

    def test_several_directories_leave_the_choice_to_the_broker(self) -> None:
        image = after(
            ONE_BROKER,
            [_with_dirs(UUID(int=1), UUID(int=2))],
        )
        made = with_topics(image, new_topic("a"))
        assert made.topics["a"].partitions[0].directories == (UUID(int=0),)


def _with_dirs(*directories: UUID) -> Any:
    return RegisterBrokerRecord(
        BrokerId(1), UUID(int=3), 9, (), (), None, False, False, directories
    )


class TestDelete:
    image = with_topics(ONE_BROKER, new_topic("a"), new_topic("b"))
    id_a = image.topics["a"].id

    def decide(self, *asked: Struct, enabled: bool = True) -> Any:
        request = Struct(topics=list(asked), topic_names=[])
        return topics.delete_topics(self.image, request, enabled=enabled)

    def answers(self, *asked: Struct) -> Any:
        result = self.decide(*asked)
        return [
            (t.name, t.topic_id, int(t.error_code), t.error_message)
            for t in result.response.responses
        ]

    def test_by_name_and_by_id(self) -> None:
        result = topics.delete_topics(self.image, delete("b"), enabled=True)
        assert set(after(self.image, result.records).topics) == {"a"}
        result = self.decide(Struct(name=None, topic_id=self.id_a))
        assert set(after(self.image, result.records).topics) == {"b"}
        assert [t.name for t in result.response.responses] == ["a"]

    def test_refused(self) -> None:
        by_id = Struct(name=None, topic_id=self.id_a)
        unknown = UUID(int=5)
        assert self.answers(Struct(name="a", topic_id=self.id_a)) == [
            ("a", self.id_a, 42, "You may not specify both topic name and topic id.")
        ]
        assert self.answers(Struct(name=None, topic_id=None)) == [
            (None, None, 42, "Neither topic name nor id were specified.")
        ]
        assert self.answers(by_id, by_id) == [(None, self.id_a, 42, "Duplicate topic id.")]
        assert self.answers(Struct(name=None, topic_id=unknown)) == [
            (None, unknown, 100, "This server does not host this topic ID.")
        ]
        assert self.answers(by_id, Struct(name="a", topic_id=None)) == [
            (
                "a",
                self.id_a,
                42,
                "The provided topic name maps to an ID that was already supplied.",
            )
        ]
        assert self.answers(Struct(name="x", topic_id=None)) == [
            ("x", None, 3, "This server does not host this topic-partition.")
        ]
        assert self.answers(*[Struct(name="a", topic_id=None)] * 2) == [
            ("a", None, 42, "Duplicate topic name.")
        ]

    def test_disabled(self) -> None:
        result = self.decide(Struct(name="a", topic_id=None), enabled=False)
        assert result.records == []
        assert result.response.responses[0].error_code is ErrorCode.topic_deletion_disabled


class TestCreatePartitions:
    image = with_topics(THREE_BROKERS, new_topic("a", 2, 2), new_topic("b"))

    def decide(
        self, *asked: tuple[str, int, list[list[int]] | None], validate_only: bool = False
    ) -> Any:
        request = Struct(
            topics=[
                Struct(
                    name=name,
                    count=count,
                    assignments=assignments and [Struct(broker_ids=b) for b in assignments],
                )
                for name, count, assignments in asked
            ],
            validate_only=validate_only,
        )
        return topics.create_partitions(self.image, request, Random(1))

    def test_more_partitions_are_created(self) -> None:
        result = self.decide(("a", 5, None))
        partitions = after(self.image, result.records).topics["a"].partitions
        assert len(partitions) == 5
        assert all(len(p.replicas) == 2 for p in partitions.values())

    def test_more_partitions_with_a_manual_assignment(self) -> None:
        result = self.decide(("a", 3, [[3, 1]]))
        assert after(self.image, result.records).topics["a"].partitions[2].replicas == (3, 1)

    def test_validate_only(self) -> None:
        assert self.decide(("a", 5, None), validate_only=True).records == []

    @pytest.mark.parametrize(
        ("asked", "code", "message"),
        [
            (("a", 2, None), 37, "Topic already has 2 partition(s)."),
            (
                ("a", 1, None),
                37,
                "The topic a currently has 2 partition(s); 1 would not be an increase.",
            ),
            (("x", 3, None), 3, None),
            (
                ("a", 4, [[1, 2]]),
                39,
                "Attempted to add 2 additional partition(s), but only 1 assignment(s) were "
                "specified.",
            ),
            (
                ("a", 3, [[1]]),
                39,
                "The manual partition assignment includes a partition with 1 replica(s), but "
                "this is not consistent with previous partitions, which have 2 replica(s).",
            ),
            (
                ("a", 3, [[1, 9]]),
                39,
                "The manual partition assignment includes broker 9, but no such broker is "
                "registered.",
            ),
            (("a", 20_003, None), 44, "Excessively large number of partitions per request."),
        ],
    )
    def test_refused(
        self, asked: tuple[str, int, list[list[int]] | None], code: ErrorCode, message: str
    ) -> None:
        result = self.decide(asked)
        (answer,) = result.response.results
        assert (int(answer.error_code), answer.error_message) == (code, message)
        assert result.records == []

    def test_named_twice(self) -> None:
        result = self.decide(("a", 3, None), ("a", 4, None), ("b", 2, None))
        assert [(t.name, int(t.error_code)) for t in result.response.results] == [
            ("b", 0),
            ("a", 42),
        ]


def test_topic_ids_never_look_like_a_flag() -> None:
    rng = Random(3)
    for _ in range(2000):
        text = base64.urlsafe_b64encode(topics.new_topic_id(rng).bytes).decode()
        assert not text.startswith("-")
