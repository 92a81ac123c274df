"""Processes of the local runtime: a stranger with an old pid is never touched."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from odradek_operator.cluster.local.ledger import write_json
from odradek_operator.cluster.local.processes import LocalBroker, ProcessFile, is_ready
from odradek_operator.observed import Phase


def broker(directory: Path) -> LocalBroker:
    return LocalBroker(0, "a", directory, "127.0.0.1:1", "127.0.0.1:1")


def test_a_pid_that_somebody_else_has_now(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        process = ProcessFile(stranger.pid, born=1, started_at=time.time(), settings={"a": "b"})
        write_json(tmp_path / "process.json", process)
        found = broker(tmp_path)
        assert found.pid is None
        assert found.look(time.time()).phase is Phase.STOPPED
        assert found.settings == {"a": "b"}, "what it was started with is known all the same"
        found.stop()
        found.kill()
        found.wait()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_broken_process_file_is_no_process(tmp_path: Path) -> None:
    (tmp_path / "process.json").write_text("{")
    assert broker(tmp_path).pid is None


def test_data_stays_unless_it_is_to_go(tmp_path: Path) -> None:
    directory = tmp_path / "broker-0"
    (directory / "data-0").mkdir(parents=True)
    (directory / "server.out").write_text("last words\n")
    found = broker(directory)
    assert found.last_words() == "last words"
    found.remove(with_data=False)
    assert [p.name for p in directory.iterdir()] == ["data-0"]
    found.remove(with_data=True)
    assert not directory.exists()


def test_nobody_is_not_ready() -> None:
    assert not is_ready("127.0.0.1:1")
