"""Streams groups with Apache Kafka's own client and tools, unmodified: Kafka Streams with
group.protocol=streams in a JVM of its own, kafka-streams-groups, and its decoder of records."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_tests.group.streams.run import BEAT_MS, StreamsRun
from odradek_protocol.client.admin.groups import describe_group, list_groups
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_testkit.clients import consume, create_topic, produce, wait_until
from odradek_testkit.connecting import for_java, for_ours, settings_file
from odradek_testkit.engines import (
    JVM_FLAGS,
    TOOLS_DIR,
    Server,
    engine,
    kafka_tool,
    streams_jars,
)

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
START_S = 120.0  # of two JVM threads on a machine that does other work
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with engine()(SETTINGS, directory=tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def word_count(tmp_path: Path) -> list[str]:
    """The command; it takes bootstrap, source, target, a directory and settings."""
    jars = f"{streams_jars()}/*"
    program = TOOLS_DIR / "streams" / "WordCount.java"
    subprocess.run(["javac", "-cp", jars, "-d", tmp_path, program], check=True, timeout=240)
    logging = f"-Dlog4j2.configurationFile={TOOLS_DIR / 'log4j2.properties'}"
    return ["java", *JVM_FLAGS, logging, "-cp", f"{tmp_path}:{jars}", "WordCount"]


def tool(server: Server, *args: str) -> str:
    done = kafka_tool(TOOL, *for_java(server), *args, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory of the application, not of the server."""
    return tmp_path


def test_an_application_counts_words(
    server: Server, topic: str, word_count: list[str], files: Path
) -> None:
    """1. It counts, with two threads. 2. The tools show its group. 3. It ends; its group is reset
    and deleted."""
    source, target, group = f"{topic}-in", f"{topic}-out", f"count-{topic}-in"
    create_topic(server, source, partitions=2)
    create_topic(server, target)
    settings = ["group.protocol=streams", "replication.factor=1", "num.stream.threads=2"]
    settings += settings_file(server)
    command = [*word_count, server.bootstrap, source, target, str(files / "state"), *settings]
    with open(files / "log", "w") as log, subprocess.Popen(
        command, stdout=log, stderr=log
    ) as program:  # fmt: skip
        try:
            produce(server, source, [b"tea for two", b"two for tea"])
            wait_until(lambda: "RUNNING" in (files / "log").read_text(), START_S)
            counted = {m.key(): m.value() for m in consume(server, target, 6)}
            assert counted == {b"tea": b"2", b"for": b"2", b"two": b"2"}
            wait_until(lambda: "Stable" in tool(server, "--describe", "--group", group, "--state"))
            assert group in tool(server, "--list")
            members = tool(server, "--describe", "--group", group, "--members")
            assert len(re.findall(group + r"\s", members)) == 2, members
            with KafkaClient(server.bootstrap, for_ours(server)) as client:
                (listed,) = (one for one in list_groups(client) if one.group_id == group)
                described = describe_group(client, group)
            assert (listed.type.lower(), listed.state) == ("streams", "Stable")
            read = sorted(place for member in described.members for place in member.assignment)
            assert [place.partition for place in read if place.topic == source] == [0, 1]
            assert len(described.members) == 2
            assert "GroupNotEmptyException" in tool(server, "--delete", "--group", group)
        finally:
            program.terminate()
            code = program.wait(60)
    assert code == 143, (files / "log").read_text()[-3000:]
    wait_until(lambda: "Empty" in tool(server, "--describe", "--group", group, "--state"))
    reset = tool(
        server, "--reset-offsets", "--group", group, "--to-earliest", "--all-input-topics",
        "--execute",
    )  # fmt: skip
    assert re.search(source + r"\s+\d\s+0", reset), reset
    deleted = tool(server, "--delete", "--group", group)
    assert "successful" in deleted, deleted
    assert group not in tool(server, "--list")


def test_dump_log_decodes_the_records(tmp_path: Path) -> None:
    """Of a simulated group, with every kind of record."""
    run = StreamsRun(1)
    for _ in range(60):
        run._step()
    run.bench.pass_time(BEAT_MS)
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    log = folder / "00000000000000000000.log"
    log.write_bytes(b"".join(run.bench.log.batches))
    dump = "org.apache.kafka.tools.DumpLogSegments"
    done = kafka_tool(dump, "--offsets-decoder", "--files", str(log), timeout_s=110)
    text = done.stdout.replace(" ", "")
    for kind in (17, 19, 20, 21, 22, 23):
        assert f'"type":"{kind}"' in text, f"no record of type {kind}\n{done.stdout[-2000:]}"
    assert '"repartitionSinkTopics":["app-by-word"]' in text
    assert '"lastAssignmentConfigs":[{"key":"num.standby.replicas"' in text
    assert '"assignmentEpochs":[' in text
    assert "Failed" not in done.stdout
