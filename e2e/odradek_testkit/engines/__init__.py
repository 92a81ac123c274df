"""Engines as processes: our broker, and Apache Kafka to show that a test holds there too.

    with RunningBroker({"auto.create.topics.enable": "false"}) as broker:
        broker.bootstrap                              # "127.0.0.1:40123"

    with engine()(settings) as broker: ...            # the engine of ODRADEK_TEST_ENGINE

`server` has what both share, `embedded` is ours, `apache` is Apache Kafka, `java_tools` fetches
Apache Kafka's jars and runs its command-line tools.
"""

from __future__ import annotations

import os

from odradek_testkit.engines.apache import QUICK_JVM, RunningApacheKafka
from odradek_testkit.engines.embedded import RunningBroker
from odradek_testkit.engines.java_tools import (
    JVM_FLAGS,
    TOOLS_DIR,
    ToolsMissingError,
    cached_jars,
    java_command,
    kafka_jars,
    kafka_tool,
    kafka_version,
    streams_jars,
    tool_command,
)
from odradek_testkit.engines.server import OWN_DIRECTORY, Server, answers_api_versions

__all__ = [
    "JVM_FLAGS",
    "OWN_DIRECTORY",
    "QUICK_JVM",
    "TOOLS_DIR",
    "RunningApacheKafka",
    "RunningBroker",
    "Server",
    "ToolsMissingError",
    "answers_api_versions",
    "cached_jars",
    "engine",
    "java_command",
    "kafka_jars",
    "kafka_tool",
    "kafka_version",
    "on_apache",
    "streams_jars",
    "tool_command",
]


def engine() -> type[RunningBroker] | type[RunningApacheKafka]:
    """The engine that the client tests run against: ODRADEK_TEST_ENGINE=apache, or ours."""
    return RunningApacheKafka if on_apache() else RunningBroker


def on_apache() -> bool:
    return os.environ.get("ODRADEK_TEST_ENGINE") == "apache"
