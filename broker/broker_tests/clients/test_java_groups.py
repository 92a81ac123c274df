"""Groups with Apache Kafka's own tools: console consumer, kafka-consumer-groups."""

from __future__ import annotations

import re

import pytest

from odradek_testkit.clients import create_topic, numbered, produce
from odradek_testkit.connecting import for_java
from odradek_testkit.engines import Server, kafka_tool

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOOL_S = 120.0


def groups(broker: Server, *args: str, check: bool = True) -> str:
    done = kafka_tool(GROUPS, *for_java(broker), *args, timeout_s=TOOL_S, check=check)
    return done.stdout + done.stderr


def test_the_console_consumer_and_the_groups_script(broker: Server, topic: str) -> None:
    """1. The console consumer reads all in a group. 2. list, describe. 3. reset and read again.
    4. delete an offset, delete the group."""
    values = numbered(20)
    create_topic(broker, topic)
    produce(broker, topic, values)
    group = f"java-{topic}"
    read = [
        *for_java(broker), "--topic", topic, "--group", group,
        "--max-messages", "20", "--timeout-ms", "60000", "--from-beginning",
    ]  # fmt: skip
    done = kafka_tool(CONSUMER, *read, timeout_s=TOOL_S)
    assert done.stdout.split() == [value.decode() for value in values]

    assert group in groups(broker, "--list").split()
    listed = groups(broker, "--list", "--state")
    assert re.search(rf"{group}\s+Classic\s+Empty", listed) or re.search(
        rf"{group}\s+Empty", listed
    )
    assert _offset(groups(broker, "--describe", "--group", group), topic) == ("20", "20", "0")

    reset = ["--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "5"]
    groups(broker, *reset, "--dry-run")
    assert _offset(groups(broker, "--describe", "--group", group), topic) == ("20", "20", "0")
    groups(broker, *reset, "--execute")
    assert _offset(groups(broker, "--describe", "--group", group), topic) == ("5", "20", "15")

    answer = groups(broker, "--delete-offsets", "--group", group, "--topic", topic)
    assert "Successful" in answer
    assert group in groups(broker, "--delete", "--group", group)
    assert group not in groups(broker, "--list").split()


def _offset(described: str, topic: str) -> tuple[str, ...]:
    """(current offset, log end offset, lag) of partition 0."""
    found = re.search(rf"{topic}\s+0\s+(\S+)\s+(\S+)\s+(\S+)", described)
    assert found, described
    return found.groups()
