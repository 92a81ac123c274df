"""DescribeConfigs: values, sources, synonyms, secrets, documentation; and log levels."""

import logging
from typing import Any

from broker_tests.controller.support import create, new_topic
from broker_tests.handlers.admin_support import AdminClient, with_client
from odradek_broker.handlers import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from odradek_broker.model.config_docs import WITHOUT_EFFECT
from odradek_broker.model.config_table import BROKER_CONFIGS, TOPIC_CONFIGS
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE = 0, 1


async def describe(
    client: AdminClient, kind: int, name: str, *keys: str, documented: bool = False
) -> Any:
    resource = Struct(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    answer = await client.ask(
        describe_configs,
        4,
        resources=[resource],
        include_synonyms=True,
        include_documentation=documented,
    )
    (result,) = answer.results
    assert result.error_code is ErrorCode.none, result.error_message
    return {entry.name: entry for entry in result.configs}


async def change(
    client: AdminClient, kind: int, name: str, operation: int, **configs: str | None
) -> Any:
    resource = Struct(
        resource_type=kind,
        resource_name=name,
        configs=[
            Struct(name=k.replace("_", "."), config_operation=operation, value=v)
            for k, v in configs.items()
        ],
    )
    answer = await client.ask(
        incremental_alter_configs, 1, resources=[resource], validate_only=False
    )
    return answer.responses[0]


def synonyms(entry: Struct) -> list[tuple[str, str, int]]:
    return [(s.name, s.value, s.source) for s in entry.synonyms]


def test_a_topic_setting_and_what_it_would_fall_back_to() -> None:
    async def story(client: AdminClient) -> None:
        topic = new_topic("t", configs={"retention.ms": "1"})
        await client.controller.create_topics(create(topic))
        await change(client, BROKER, "1", SET, log_retention_ms="2")
        await change(client, BROKER, "", SET, log_retention_ms="3")
        entry = (await describe(client, TOPIC, "t", "retention.ms"))["retention.ms"]
        assert (entry.value, entry.config_source, entry.config_type) == ("1", 1, 5)
        assert synonyms(entry) == [
            ("retention.ms", "1", 1),
            ("log.retention.ms", "2", 2),
            ("log.retention.ms", "3", 3),
            ("log.retention.ms", "4", 4),
            ("log.retention.hours", "168", 5),
        ]
        await change(client, TOPIC, "t", DELETE, retention_ms=None)
        await change(client, BROKER, "1", DELETE, log_retention_ms=None)
        entry = (await describe(client, TOPIC, "t", "retention.ms"))["retention.ms"]
        assert (entry.value, entry.config_source) == ("3", 3)

    with_client(story, {"log.retention.ms": "4"})


def test_everything_of_a_topic_and_a_broker() -> None:
    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("t")))
        topic = await describe(client, TOPIC, "t")
        assert topic.keys() == TOPIC_CONFIGS.keys() - {"internal.segment.bytes"}
        broker = await describe(client, BROKER, "1")
        assert {n for n, key in BROKER_CONFIGS.items() if not key.internal} == broker.keys()
        assert not broker["log.retention.ms"].read_only
        assert broker["num.partitions"].read_only
        assert await describe(client, BROKER, "") == {}

    with_client(story)


def test_secrets_are_never_in_the_answer() -> None:
    async def story(client: AdminClient) -> None:
        broker = await describe(client, BROKER, "1")
        for name in ("ssl.keystore.password", "listener.name.x.ssl.key.password"):
            entry = broker[name]
            assert entry.is_sensitive
            assert entry.value is None
            assert [s.value for s in entry.synonyms] == [None]
            assert entry.config_source == 4
        await change(client, BROKER, "1", SET, my_plugin_token="secret")
        entry = (await describe(client, BROKER, "1", "my.plugin.token"))["my.plugin.token"]
        assert (entry.value, entry.is_sensitive) == (None, True)

    settings = {"ssl.keystore.password": "secret", "listener.name.x.ssl.key.password": "secret"}
    with_client(story, settings)


def test_documentation() -> None:
    async def story(client: AdminClient) -> None:
        keys = ("log.retention.ms", "num.io.threads")
        told = await describe(client, BROKER, "1", *keys, documented=True)
        assert told["log.retention.ms"].documentation.startswith("retention.ms of topics")
        assert told["num.io.threads"].documentation == WITHOUT_EFFECT
        silent = await describe(client, BROKER, "1", *keys)
        assert silent["log.retention.ms"].documentation is None

    with_client(story)


def test_alter_configs_replaces_all() -> None:
    async def story(client: AdminClient) -> None:
        topic = new_topic("t", configs={"retention.ms": "1", "flush.ms": "2"})
        await client.controller.create_topics(create(topic))
        resource = Struct(
            resource_type=TOPIC,
            resource_name="t",
            configs=[Struct(name="flush.ms", value="3")],
        )
        await client.ask(alter_configs, 2, resources=[resource], validate_only=False)
        assert client.controller.image.topic_config("t") == {"flush.ms": "3"}

    with_client(story)


def test_log_levels() -> None:
    name = "odradek_broker.test_levels"
    logger = logging.getLogger(name)

    async def story(client: AdminClient) -> None:
        before = (await describe(client, LOGGER, "1", name))[name]
        assert before.config_source == 6
        resource = Struct(
            resource_type=LOGGER,
            resource_name="1",
            configs=[Struct(name=name, config_operation=SET, value="ERROR")],
        )
        other = Struct(resource_type=TOPIC, resource_name="unknown", configs=[])
        answer = await client.ask(
            incremental_alter_configs, 1, resources=[other, resource], validate_only=False
        )
        assert [r.resource_type for r in answer.responses] == [TOPIC, LOGGER]
        assert answer.responses[1].error_code is ErrorCode.none
        assert logger.level == logging.ERROR
        assert (await describe(client, LOGGER, "1", name))[name].value == "ERROR"
        resource.configs = [Struct(name=name, config_operation=DELETE, value=None)]
        await client.ask(incremental_alter_configs, 1, resources=[resource], validate_only=False)
        assert logger.level == logging.NOTSET
        assert "root" in await describe(client, LOGGER, "1")

    with_client(story)


def test_resources_that_have_a_configuration() -> None:
    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("t")))
        answer = await client.ask(list_config_resources, 1, resource_types=[])
        assert [(r.resource_name, r.resource_type) for r in answer.config_resources] == [
            ("1", LOGGER),
            ("1", BROKER),
            ("t", TOPIC),
        ]

    with_client(story)


def test_an_unknown_type_refuses_all_of_the_request() -> None:
    """As Kafka does."""

    async def story(client: AdminClient) -> None:
        await client.controller.create_topics(create(new_topic("t")))
        kinds = [(TOPIC, "t"), (1, "t"), (BROKER, "1")]
        resources = [
            Struct(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in kinds
        ]
        answer = await client.ask(describe_configs, 4, resources=resources)
        assert [(r.resource_type, r.resource_name) for r in answer.results] == kinds
        assert {r.error_code for r in answer.results} == {ErrorCode.invalid_request}
        assert all(r.configs == [] for r in answer.results)

    with_client(story)
