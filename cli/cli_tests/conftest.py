"""A broker for the CLI tests, and the command as a user types it.

The command runs inside of the test process, because the start of a new one costs more than the
command.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from odradek_cli.main import main
from odradek_cli.migrate.clusters import MigrationSide
from odradek_testkit.engines import RunningBroker, Server


@dataclass
class Done:
    """The output of a finished command, whose exit code is checked already."""

    stdout: str
    stderr: str


Odradek = Callable[..., Done]


def own_configs(server: Server, topic: str) -> dict[str, str]:
    """The settings that were made on this topic."""
    with closing(MigrationSide(server.bootstrap)) as cluster:
        return cluster.configs([topic])[topic]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for a file of tests; each test uses topics of its own."""
    with RunningBroker(directory=tmp_path_factory.mktemp("cli")) as running:
        yield running


@pytest.fixture
def odradek(
    broker: RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Odradek:
    """odradek("topics", "list") -> what it printed; fails unless the exit code is `code`."""
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*args: str, stdin: str | bytes = "", code: int = 0) -> Done:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "argv", ["odradek", *args])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        exit_code = 0
        try:
            main()
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else int(end.code is not None)
        out, err = capsysbinary.readouterr()
        assert exit_code == code, out.decode() + err.decode()
        return Done(out.decode(), err.decode())

    return run


@pytest.fixture
def as_json(odradek: Odradek) -> Callable[..., Any]:
    """as_json("topics", "list") -> what `--json` printed, parsed."""
    return lambda *args: json.loads(odradek(*args, "--json").stdout)


@pytest.fixture
def topic(request: pytest.FixtureRequest, odradek: Odradek) -> str:
    """A topic with two partitions, named after the test."""
    name = str(request.node.name).removeprefix("test_").replace("[", ".").replace("]", "")
    odradek("topics", "create", name, "--partitions", "2")
    return name


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A file of a thousand lines: "key-7:value-7"."""
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"key-{i}:value-{i}\n" for i in range(1_000)))
    return path
