"""The command itself: help, completion, the demo, and a broker run in the foreground."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli_tests.conftest import Odradek
from odradek_cli.lazy_group import COMMANDS, load

COMMAND = [sys.executable, "-c", "from odradek_cli.main import main; main()"]
HEAVY = (
    "confluent_kafka",
    "kio",
    "odradek_broker",
    "odradek_cli.topics",
    "odradek_protocol",
    "rich",
)


def test_help_of_everything(odradek: Odradek) -> None:
    overview = odradek("--help").stdout
    for command in ("broker", "topics", "configs", "produce", "consume", "dump-log", "demo"):
        assert re.search(rf"\b{command}\b", overview)
        assert "Usage" in odradek(command, "--help").stdout


def imported_by(code: str) -> list[str]:
    code = f"import sys\n{code}\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return list(ast.literal_eval(done.stdout))


def test_help_imports_no_kafka_client() -> None:
    """`--help` and completion answer at once: commands and clients are imported when used."""
    assert imported_by("import odradek_cli.main") == []
    assert imported_by("import odradek_cli.topics") == ["odradek_cli.topics"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_shows_the_help_of_each_command(name: str) -> None:
    command = load(name)
    assert command.help is not None
    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name][2]


def test_completion_knows_commands_and_topics(
    odradek: Odradek, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def complete(words: str) -> str:
        monkeypatch.setenv("_ODRADEK_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        return odradek().stdout

    assert complete("odradek topi").split() == ["topics"]
    assert topic in complete(f"odradek consume {topic[:4]}").split()


def test_demo(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*COMMAND, "demo", "--records", "5000", "--json"],
        capture_output=True, text=True, timeout=90, check=False, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads(done.stdout)
    assert measured["records"] == 5_000
    assert measured["startup_ms"] > 0
    assert measured["latency_ms_p50"] < 1_000
    assert list(tmp_path.iterdir()) == []  # leaves nothing behind


def test_broker_run_until_sigterm(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=5\nlog.dirs={tmp_path}/data\nnum.partitions=4\n")
    with subprocess.Popen(
        [*COMMAND, "broker", "run", "-c", str(properties),
         "--override", "listeners=PLAINTEXT://127.0.0.1:0",
         "--override", "odradek.admin.listener=127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "ready"
        assert ready["node_id"] == 5
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_start_that_fails_leaves_no_directory(odradek: Odradek, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "broker", "run", "--override", f"log.dirs={tmp_path}/data",
             "--override", f"listeners=PLAINTEXT://127.0.0.1:{port}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"listeners: cannot bind PLAINTEXT://127.0.0.1:{port}: Address already" in done.stderr
    assert not (tmp_path / "data").exists()


def test_broker_run_refuses_bad_settings(odradek: Odradek) -> None:
    refused = odradek("broker", "run", "--override", "num.partitions=x", code=2)
    assert "num.partitions" in refused.stderr
