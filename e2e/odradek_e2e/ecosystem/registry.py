"""The cases, in the order of the table."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence

from odradek_e2e.ecosystem import connect_case, exporters, kcat_case, mirror_case, schemas_case
from odradek_e2e.ecosystem.apps import App, Member
from odradek_e2e.ecosystem.build import (
    PROGRAMS,
    go_program,
    java_classes,
    node_program,
    python_program,
)
from odradek_e2e.ecosystem.case import Case, program_case
from odradek_testkit.engines import JVM_FLAGS, TOOLS_DIR, kafka_version


def _go(name: str, module: str) -> Case:
    found = re.search(rf"{module} (\S+)", (PROGRAMS / name / "go.mod").read_text())
    version = found[1] if found else "?"
    return program_case(name, f"{name} {version}", lambda: [str(go_program(name))])


def _npm(name: str, package: str) -> Case:
    wanted = json.loads((PROGRAMS / name / "package.json").read_text())["dependencies"]
    title = f"{name} {wanted[package]}"
    return program_case(name, title, lambda: ["node", str(node_program(name) / "main.js")])


def _python(name: str, package: str, *, exactly_once: bool = False) -> Case:
    """A framework from PyPI, in an environment of its own."""
    pinned = (PROGRAMS / name / "requirements.txt").read_text().strip()
    version = pinned.rpartition("==")[2]

    def command() -> list[str]:
        python = python_program(name)
        return [str(python), str(python.parents[2] / "app.py")]

    return App(name, f"{package} {version}", command, exactly_once).case()


def _java(name: str, *settings: str) -> Callable[[], Sequence[str]]:
    """The last arguments are those of every app; settings follow the state directory."""
    logging = f"-Dlog4j2.configurationFile={TOOLS_DIR / 'log4j2.properties'}"

    def command() -> list[str]:
        given = [f"-Dapp.{setting}" for setting in settings]
        return ["java", "-Xmx512m", *JVM_FLAGS[1:], *JAVA_OPENS, *given, logging, "-cp",
                java_classes(name), "Upper"]  # fmt: skip

    return command


# Flink's serializers look into these packages.
JAVA_OPENS = ("--add-opens=java.base/java.util=ALL-UNNAMED",
              "--add-opens=java.base/java.lang=ALL-UNNAMED",
              "--add-opens=java.base/java.time=ALL-UNNAMED")  # fmt: skip


def _streams() -> list[Case]:
    title = f"Kafka Streams {kafka_version()}"
    classic = App("kafka-streams", f"{title}, classic group", _java("kafka-streams"),
                  exactly_once=True, state=True)  # fmt: skip
    command = _java("kafka-streams", "group.protocol=streams")
    groups = App("kafka-streams-groups", f"{title}, streams group", command, exactly_once=True,
                 member=Member.STREAMS, state=True)  # fmt: skip
    return [classic.case(), groups.case()]


def _flink() -> Case:
    pom = (PROGRAMS / "flink" / "pom.xml").read_text()
    flink, connector = re.findall(r"<flink.*version>(.+?)</", pom)[:2]
    title = f"Flink {flink}, its Kafka connector {connector}"
    return App("flink", title, _java("flink"), exactly_once=True, member=None).case()


def _kcat_version() -> str:
    if shutil.which("kcat") is None:
        return "kcat"
    shown = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False)
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", shown.stdout + shown.stderr)
    return f"kcat {found[1]} (librdkafka {found[2]})" if found else "kcat"


def _cases() -> list[Case]:
    return [
        _go("sarama", "github.com/IBM/sarama"),
        _go("franz-go", "github.com/twmb/franz-go"),
        _go("kafka-go", "github.com/segmentio/kafka-go"),
        _go("confluent-kafka-go", "github.com/confluentinc/confluent-kafka-go/v2"),
        Case("kcat", _kcat_version(), kcat_case.run, checks=kcat_case.CHECKS),
        _npm("kafkajs", "kafkajs"),
        _npm("confluent-kafka-javascript", "@confluentinc/kafka-javascript"),
        connect_case.CASE,
        mirror_case.CASE,
        *_streams(),
        _flink(),
        _python("faststream", "FastStream (confluent)"),
        _python("quix-streams", "Quix Streams", exactly_once=True),
        _python("faust", "faust-streaming"),
        schemas_case.CASE,
        *exporters.CASES,
    ]


CASES: dict[str, Case] = {case.name: case for case in _cases()}
