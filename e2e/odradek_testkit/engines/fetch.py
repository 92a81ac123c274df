"""Fetches Apache Kafka before the tests need it: `python -m odradek_testkit.engines.fetch`.

Where Java has a compiler it also makes the archives of classes (java_tools.class_archive): a server
is started, clients use it, and both JVMs write down what they had loaded when they end (15 s).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from odradek_testkit.engines.apache import QUICK_JVM, RunningApacheKafka
from odradek_testkit.engines.java_tools import (
    CLIENTS,
    SERVER,
    archive_flags,
    class_archive,
    kafka_jars,
    tool_command,
)
from odradek_testkit.engines.tool_server import ToolServer

TOOLS = "org.apache.kafka.tools"
TOPIC = ("--topic", "archive-classes")
READ_ALL = ("--from-beginning", "--max-messages", "1")
# What loads the classes: each is a class, its arguments and its input.
USES = (
    (f"{TOOLS}.TopicCommand", ("--create", *TOPIC), b""),
    (f"{TOOLS}.ConsoleProducer", TOPIC, b"a record\n"),
    (f"{TOOLS}.consumer.ConsoleConsumer", (*TOPIC, *READ_ALL, "--group", "readers"), b""),
    (f"{TOOLS}.consumer.group.ConsumerGroupCommand", ("--describe", "--all-groups"), b""),
    ("kafka.admin.ConfigCommand", ("--describe", "--entity-type", "topics"), b""),
)
TOOL_S = 120.0


def main() -> None:
    kafka_jars()
    if shutil.which("javac") and not (archive_flags(CLIENTS) and archive_flags(SERVER)):
        make_archives()


def make_archives() -> None:
    server = RunningApacheKafka({"offsets.topic.num.partitions": "1"})
    with _archiving(SERVER) as server_flags, _archiving(CLIENTS) as client_flags:
        server.jvm = (*server_flags, *QUICK_JVM)
        with server:
            tools = ToolServer(tool_command("ToolServer", archive=client_flags))
            for main_class, arguments, given in USES:
                words = (main_class, "--bootstrap-server", server.bootstrap, *arguments)
                tools.run(words, given, TOOL_S)
            tools.end()


@contextmanager
def _archiving(of: str) -> Iterator[tuple[str, ...]]:
    """Flags with which a JVM writes this archive when it ends."""
    archive = class_archive(of)
    assert archive is not None
    partial = archive.with_suffix(f".{os.getpid()}")
    yield (f"-XX:ArchiveClassesAtExit={partial}", "-Xlog:disable")
    if partial.exists():
        partial.rename(archive)


if __name__ == "__main__":
    main()
