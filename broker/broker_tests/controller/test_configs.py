"""Configurations of topics and brokers: SET, DELETE, APPEND, SUBTRACT, and replacing all.

The expected texts were read off Apache Kafka 4.3.1 with the same requests.
"""

from random import Random
from typing import Any

import pytest

from broker_tests.controller.support import after, cluster, create, new_topic
from odradek_broker.controller import configs, topics
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import ResourceType
from odradek_broker.runtime.settings import Settings
from odradek_protocol.messages.struct import Struct

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = range(4)

SETTINGS = Settings()
_empty = cluster({1: None})
IMAGE = after(
    _empty, topics.create_topics(_empty, create(new_topic("t")), SETTINGS, Random(1)).records
)


def resource(kind: int, name: str, *changes: tuple[int, str, str | None]) -> Struct:
    return Struct(
        resource_type=kind,
        resource_name=name,
        configs=[
            Struct(name=key, config_operation=operation, value=value)
            for operation, key, value in changes
        ],
    )


def alter(image: MetadataImage, *resources: Struct, incremental: bool = True, **kw: bool) -> Any:
    request = Struct(resources=list(resources), validate_only=kw.get("validate_only", False))
    function = configs.incremental_alter_configs if incremental else configs.alter_configs
    return function(image, request, SETTINGS)


def altered(image: MetadataImage, *resources: Struct, incremental: bool = True) -> MetadataImage:
    result = alter(image, *resources, incremental=incremental)
    assert [a.error_message for a in result.response.responses] == [None] * len(resources)
    return after(image, result.records)


class TestIncremental:
    def test_set_and_delete(self) -> None:
        image = altered(IMAGE, resource(TOPIC, "t", (SET, "retention.ms", "5")))
        assert image.topic_config("t") == {"retention.ms": "5"}
        image = altered(image, resource(TOPIC, "t", (DELETE, "retention.ms", None)))
        assert image.topic_config("t") == {}

    def test_lists_grow_and_shrink_from_their_default(self) -> None:
        image = altered(IMAGE, resource(TOPIC, "t", (APPEND, "cleanup.policy", "compact")))
        assert image.topic_config("t") == {"cleanup.policy": "delete,compact"}
        image = altered(image, resource(TOPIC, "t", (SUBTRACT, "cleanup.policy", "delete")))
        assert image.topic_config("t") == {"cleanup.policy": "compact"}
        image = altered(image, resource(TOPIC, "t", (SUBTRACT, "cleanup.policy", "compact")))
        assert image.topic_config("t") == {"cleanup.policy": ""}

    def test_no_record_where_nothing_changes(self) -> None:
        image = altered(IMAGE, resource(TOPIC, "t", (SET, "retention.ms", "5")))
        again = alter(image, resource(TOPIC, "t", (SET, "retention.ms", "5")))
        assert again.records == []

    def test_validate_only(self) -> None:
        request = resource(TOPIC, "t", (SET, "retention.ms", "5"))
        assert alter(IMAGE, request, validate_only=True).records == []

    def test_a_resource_changes_as_a_whole_or_not_at_all(self) -> None:
        bad = resource(TOPIC, "t", (SET, "retention.ms", "5"), (SET, "flush.ms", "x"))
        good = resource(BROKER, "", (SET, "log.retention.ms", "5"))
        result = alter(IMAGE, bad, good)
        assert [int(a.error_code) for a in result.response.responses] == [40, 0]
        image = after(IMAGE, result.records)
        assert image.topic_config("t") == {}
        assert image.config(BROKER, "") == {"log.retention.ms": "5"}

    @pytest.mark.parametrize(
        ("asked", "code", "message"),
        [
            (
                resource(TOPIC, "t", (SET, "retention.ms", "x")),
                40,
                "Invalid value x for configuration retention.ms: Not a number of type LONG",
            ),
            (
                resource(TOPIC, "t", (SET, "nope", "x")),
                40,
                "Unknown topic config name: nope",
            ),
            (
                resource(TOPIC, "t", (SET, "retention.ms", None)),
                42,
                "Null value not supported for : retention.ms",
            ),
            (
                resource(TOPIC, "t", (SET, "flush.ms", "1"), (SET, "flush.ms", "2")),
                42,
                "Error due to duplicate config keys",
            ),
            (
                resource(TOPIC, "unk", (SET, "retention.ms", "1")),
                3,
                "The topic 'unk' does not exist.",
            ),
            (
                resource(TOPIC, "unk", (SET, "retention.ms", "x")),
                40,
                "Invalid value x for configuration retention.ms: Not a number of type LONG",
            ),
            (
                resource(TOPIC, "", (SET, "retention.ms", "1")),
                42,
                "Default topic resources are not allowed.",
            ),
            (
                resource(TOPIC, "t", (APPEND, "retention.ms", "5")),
                40,
                "Can't APPEND to key retention.ms because its type is not LIST.",
            ),
            (
                resource(TOPIC, "t", (APPEND, "cleanup.policy", "foo")),
                40,
                "Invalid value foo for configuration cleanup.policy: String must be one of: "
                "compact, delete",
            ),
            (resource(0, "t", (SET, "flush.ms", "7")), 42, "Unknown resource type 0"),
            (resource(99, "t", (SET, "flush.ms", "7")), 42, "Unknown resource type 99"),
            (
                resource(BROKER, "1", (SET, "num.partitions", "5")),
                42,
                "Cannot update these configs dynamically: [num.partitions]",
            ),
            (
                resource(BROKER, "1", (SET, "log.retention.ms", "x")),
                42,
                "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
            ),
            (
                resource(BROKER, "", (SET, "ssl.keystore.location", "x")),
                42,
                "These security configs can be dynamically updated only per-listener using the "
                "listener prefix: [ssl.keystore.location]",
            ),
            (
                resource(BROKER, "", (SET, "listeners", "PLAINTEXT://:1")),
                42,
                "Cannot update these configs at default cluster level, broker id must be "
                "specified: [listeners]",
            ),
            (
                resource(BROKER, "2", (SET, "log.retention.ms", "5")),
                42,
                "Unexpected broker id, expected 1, but received 2",
            ),
            (
                resource(BROKER, "x", (SET, "log.retention.ms", "5")),
                42,
                "Node id must be an integer, but it is: x",
            ),
            (
                resource(BROKER, "1", (APPEND, "log.retention.ms", "5")),
                40,
                "Config value append is not allowed for config key: log.retention.ms",
            ),
            (
                resource(BROKER, "1", (APPEND, "nope", "5")),
                40,
                "Unknown config name: nope",
            ),
            (
                resource(BROKER, "1", (9, "log.retention.ms", "5")),
                42,
                "Unknown operations type 9",
            ),
            (
                resource(BROKER, "1", (SET, "listener.name.foo.max.connections", "x")),
                42,
                "Invalid value x for configuration max.connections: Not a number of type INT",
            ),
            (
                resource(BROKER, "1", (SET, "log.retention.ms", "0")),
                42,
                "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
            ),
        ],
    )
    def test_invalid_changes_are_refused(self, asked: Struct, code: int, message: str) -> None:
        result = alter(IMAGE, asked)
        (answer,) = result.response.responses
        assert (int(answer.error_code), answer.error_message) == (code, message)
        assert result.records == []

    def test_a_resource_named_twice(self) -> None:
        one = resource(TOPIC, "t", (SET, "flush.ms", "1"))
        result = alter(IMAGE, one, one)
        assert [a.error_message for a in result.response.responses] == [
            "Each resource must appear at most once."
        ] * 2
        assert result.records == []

    def test_unknown_broker_names_are_left_to_plugins(self) -> None:
        image = altered(IMAGE, resource(BROKER, "1", (SET, "my.plugin.level", "9")))
        assert image.config(BROKER, "1") == {"my.plugin.level": "9"}


class TestReplaceAll:
    def test_settings_that_are_not_named_return_to_their_defaults(self) -> None:
        image = altered(IMAGE, resource(TOPIC, "t", (SET, "retention.ms", "5")))
        image = altered(image, resource(TOPIC, "t", (SET, "flush.ms", "9")), incremental=False)
        assert image.topic_config("t") == {"flush.ms": "9"}
        image = altered(image, resource(TOPIC, "t"), incremental=False)
        assert image.configs == {}

    def test_null_is_refused(self) -> None:
        result = alter(IMAGE, resource(TOPIC, "t", (SET, "flush.ms", None)), incremental=False)
        assert result.response.responses[0].error_message == (
            "Null value not supported for : flush.ms"
        )
