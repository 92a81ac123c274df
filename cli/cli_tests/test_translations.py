"""The table of docs/reference/cli.md: what kafka-*.sh, kcat and odradek do, line by line."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from cli_tests.conftest import Odradek
from odradek_testkit.engines import RunningBroker, kafka_tool

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
CLASSES = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-share-groups.sh": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-console-share-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions.sh": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-metadata-quorum.sh": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-delete-records.sh": "org.apache.kafka.tools.DeleteRecordsCommand",
}


class Row(NamedTuple):
    task: str
    kafka: str
    kcat: str
    rpk: str
    odradek: str


def rows() -> list[Row]:
    section = PAGE.read_text().split("## From kafka-*.sh, kcat and rpk")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    found = []
    for line in lines:
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        found.append(Row(*(cell.strip().strip("`").replace("\\|", "|") for cell in cells)))
    return found


def stages(command: str) -> tuple[str, list[list[str]]]:
    """The text of a leading echo, and the commands of a pipe."""
    parts = [shlex.split(part) for part in command.split(" | ")]
    if parts[0][0] == "echo":
        return " ".join(parts[0][1:]) + "\n", parts[1:]
    return "", parts


def test_the_table_is_complete() -> None:
    assert len(rows()) >= 30
    assert all(row.odradek.startswith(("odradek ", "echo ")) for row in rows())


def test_the_column_of_odradek(odradek: Odradek) -> None:
    printed: dict[str, str] = {}
    for row in rows():
        text, commands = stages(row.odradek)
        for command, *arguments in commands:
            assert command == "odradek"
            text = odradek(*arguments, stdin=text).stdout
        printed[row.task] = text
    assert sorted(printed["read all and stop"].split()) == ["hello", "v"]
    assert printed["the last record"] == "v\n"
    assert "k v\n" in printed["read with a format"]
    assert "billing" in printed["lag of a group"]
    assert "packers: Empty" in printed["lag of a share group"]


def test_the_column_of_kcat(broker: RunningBroker, odradek: Odradek) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed: make setup installs it")
    odradek("topics", "create", "orders", "-p", "3")
    for row in rows():
        if row.kcat:
            text, ((*command,),) = stages(row.kcat.replace("localhost:9092", broker.bootstrap))
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (row.task, done.stderr)
    odradek("topics", "delete", "orders", "--yes")


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_column_of_kafka(broker: RunningBroker, tmp_path: Path) -> None:
    (tmp_path / "records.json").write_text(
        '{"partitions": [{"topic": "orders", "partition": 0, "offset": -1}], "version": 1}'
    )
    for row in rows():
        if not row.kafka:
            continue
        line = row.kafka.replace("$B", f"--bootstrap-server {broker.bootstrap}")
        text, (command,) = stages(line.replace("FILE", str(tmp_path / "records.json")))
        consumer = CLASSES[command[0]].endswith("Consumer")
        # The console consumers exit with an error when they get no record for --timeout-ms.
        kafka_tool(
            CLASSES[command[0]], *command[1:], stdin=text, check=not consumer, timeout_s=150.0
        )
