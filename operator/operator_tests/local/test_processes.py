"""Processes of the local runtime: other processes are never touched, brokers that exit restart."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from odradek_operator.kafka.observed import ObservedBroker, Phase
from odradek_operator.local import processes
from odradek_operator.local.ledger import write_json
from odradek_operator.local.processes import (
    STEADY_S,
    LocalBroker,
    ProcessFile,
    is_ready,
    readiness,
)


def broker(directory: Path) -> LocalBroker:
    return LocalBroker(0, "a", directory, "127.0.0.1:1", "127.0.0.1:1")


def test_a_pid_that_another_process_has_now(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        process = ProcessFile(stranger.pid, born=1, started_at=time.time(), settings={"a": "b"})
        write_json(tmp_path / "process.json", process)
        found = broker(tmp_path)
        assert found.pid is None
        assert found.observe(time.time()).phase is Phase.STOPPED
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
    assert found.last_line() == "last words"
    found.remove(with_data=False)
    assert [p.name for p in directory.iterdir()] == ["data-0"]
    found.remove(with_data=True)
    assert not directory.exists()


def test_an_address_without_a_listener_is_not_ready() -> None:
    assert not is_ready("127.0.0.1:1")


# -- brokers that end by themselves ----------------------------------------------------------------

FULL = "odradek: log directory /data: no space left on device"


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalBroker:
    """A broker whose every start ends with exit code 75."""
    program = f"import sys; print({FULL!r}, file=sys.stderr); sys.exit(75)"
    monkeypatch.setattr(processes, "command", lambda *_: [sys.executable, "-c", program])
    return broker(tmp_path)


def until_it_ended(found: LocalBroker, now: float) -> ObservedBroker:
    give_up = time.monotonic() + 30
    while (seen := pass_over(found, now)).phase is Phase.STARTING:
        assert time.monotonic() < give_up
        time.sleep(0.01)
    return seen


def pass_over(found: LocalBroker, now: float) -> ObservedBroker:
    found.supervise(now)
    return found.observe(now)


def test_a_broker_that_keeps_ending_is_restarted_with_back_off(ending: LocalBroker) -> None:
    now, pauses = time.time(), []
    for _ in range(8):
        ending.start({})
        seen = until_it_ended(ending, now)
        assert seen.phase is Phase.CRASHED, "it waits"
        assert seen.ended is not None
        assert (seen.ended.exit_code, seen.ended.for_storage) == (75, True)
        assert seen.detail.startswith(f"it ended with exit code 75: {FULL}; next start after ")
        pause = next(s for s in range(100) if pass_over(ending, now + s).phase is Phase.STOPPED)
        pauses.append(pause)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert f"next start after {pauses[-1]} s, at " in seen.detail


def test_observing_neither_restarts_nor_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a process during a restart is noticed and acted on by `supervise` alone."""
    monkeypatch.setattr(processes, "command", lambda *_: ["sleep", "60"])
    found = broker(tmp_path)
    found.start({})
    first = found.pid
    assert first is not None
    found.restart({"a": "b"})
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    for later in (0.0, 2 * processes.STOP_DEADLINE_S):
        assert found.observe(time.time() + later).phase is Phase.STARTING
        assert found.pid == first
    found.supervise(time.time())
    try:
        assert found.pid not in (None, first)
        assert found.settings == {"a": "b"}
    finally:
        found.kill()
        found.wait()


def test_how_it_ended_is_reported_until_it_is_ready_again(
    ending: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending.start({})
    until_it_ended(ending, time.time())
    monkeypatch.setattr(processes, "command", lambda *_: ["sleep", "60"])
    ending.start({})
    try:
        monkeypatch.setattr(processes, "readiness", lambda _: (False, "waiting for room"))
        seen = ending.observe(time.time())
        assert (seen.phase, seen.detail) == (Phase.STARTING, "waiting for room")
        assert seen.ended is not None
        assert seen.ended.words.endswith(f"{FULL}; started again: waiting for room")
        monkeypatch.setattr(processes, "readiness", lambda _: (True, ""))
        seen = ending.observe(time.time())
        assert (seen.phase, seen.ended) == (Phase.READY, None)
    finally:
        ending.kill()
        ending.wait()


def test_a_broker_that_ran_for_a_while_begins_with_the_shortest_pause(ending: LocalBroker) -> None:
    for _ in range(3):
        ending.start({})
        until_it_ended(ending, time.time())
    ending.start({})
    later = time.time() + STEADY_S + 1
    seen = until_it_ended(ending, later)
    assert "next start after 1 s" in seen.detail


def test_new_settings_are_tried_at_once(ending: LocalBroker) -> None:
    for _ in range(3):
        ending.start({})
        until_it_ended(ending, time.time())
    ending.restart({"a": "b"})
    assert ending.pid is not None
    assert "next start after 1 s" in until_it_ended(ending, time.time()).detail


def test_a_broker_that_is_killed_has_no_last_log_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "command", lambda *_: ["sleep", "60"])
    (tmp_path / "server.out").write_text("something of yesterday\n")
    found = broker(tmp_path)
    found.start({})
    found.kill()
    seen = until_it_ended(found, time.time())
    assert seen.detail.startswith("it was ended by SIGKILL; next start after 1 s, at ")
    assert seen.ended is not None
    assert not seen.ended.for_storage


def test_one_that_was_stopped_is_not_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "command", lambda *_: ["sleep", "60"])
    found = broker(tmp_path)
    found.start({})
    found.stop()
    seen = until_it_ended(found, time.time())
    assert (seen.phase, seen.ended) == (Phase.STOPPED, None)


def test_why_a_broker_is_not_ready() -> None:
    body = b'{"ready": false, "reasons": {"storage": "/data is full", "isolated": "no quorum"}}'

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            found = readiness(f"127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
    assert found == (False, "/data is full; no quorum")
