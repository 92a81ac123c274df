"""The page of the local runtime: its state, and what pasted manifests would do."""

from __future__ import annotations

import http.cookiejar
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from console_tests.conftest import Console, Visitor
from odradek_testkit.engines import RunningBroker
from odradek_testkit.ports import free_port
from odradek_testkit.waiting import wait_until


def manifest() -> str:
    return (Path(__file__).parents[2] / "examples" / "quickstart" / "cluster.yaml").read_text()


def test_pasted_manifests_are_planned_and_not_applied(
    broker: RunningBroker, tmp_path: Path
) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    options = ("--local", str(manifests), "--read-only")
    with Console(broker.bootstrap, tmp_path, *options) as console:
        visitor = Visitor(console).enter()
        page = visitor.get("/plan").text
        assert "No local runtime has run here" in page
        token = visitor.csrf("/plan")
        planned = visitor.post("/plan", {"manifests": manifest(), "csrf": token})
        assert planned.status == 200, planned.text
        assert '<ol class="steps">' in planned.text
        assert not list(manifests.rglob("server.properties"))  # nothing was started
        wrong = visitor.post("/plan", {"manifests": "kind: KafkaCluster", "csrf": token})
        assert wrong.status == 400
        assert "apiVersion" in wrong.text
        state = manifests / ".odradek"
        state.mkdir(exist_ok=True)
        report = {"problems": ["topic x: <b>refused</b>"]}
        (state / "status.json").write_text(json.dumps(report))
        page = visitor.get("/plan").text
        assert "does not run now" in page
        assert "&lt;b&gt;refused" in page


def test_without_a_local_runtime_there_is_no_such_page(visitor: Visitor) -> None:
    assert visitor.get("/plan").status == 404
    assert ">Plan<" not in visitor.get("/").text


def up(manifests: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "odradek_cli", "local", "up", "-f", str(manifests), *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def line_with(process: subprocess.Popen[str], word: str) -> str:
    """The next line of its messages with this word; the test ends with its time limit."""
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return line.strip()
    raise AssertionError(f"it ended without {word!r}")


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=10) as answer:
            return bool(answer.read() == b"ok\n")
    except OSError:
        return False


@pytest.mark.long  # a runtime with a cluster, twice
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_local_up_brings_the_console_along(tmp_path: Path, end: signal.Signals) -> None:
    """It is served when the cluster is there, and ends with the runtime, even if that is killed."""
    listen = f"127.0.0.1:{free_port()}"
    (tmp_path / "cluster.yaml").write_text(
        "apiVersion: odradek.dev/v1alpha1\nkind: KafkaCluster\nmetadata: {name: main}\n"
        "spec: {brokers: 1}\n"
    )
    with up(tmp_path, "--console", "--console-listen", listen) as runtime:
        try:
            where = line_with(runtime, "Console: ").partition("Console: ")[2]
            assert where.startswith(f"http://{listen}/?token=")
            cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
            opener = urllib.request.build_opener(cookies)
            opener.open(where).close()
            with opener.open(f"http://{listen}/plan") as page:
                assert "KafkaCluster default/main" in page.read().decode()
        finally:
            runtime.send_signal(end)
            runtime.communicate()
    wait_until(lambda: not answers(f"http://{listen}"), "the console has ended")
    down = [sys.executable, "-m", "odradek_cli", "local", "down", "-f", str(tmp_path)]
    subprocess.run(down, check=True, capture_output=True)


@pytest.mark.long  # a runtime with a cluster
def test_a_console_that_cannot_start_does_not_end_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(
        "apiVersion: odradek.dev/v1alpha1\nkind: KafkaCluster\nmetadata: {name: main}\n"
        "spec: {brokers: 1}\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with up(tmp_path, "--console", "--console-listen", listen) as runtime:
            try:
                said = line_with(runtime, "The console ended")
                assert f"--listen {listen}" in said
                assert runtime.poll() is None
            finally:
                runtime.terminate()
                runtime.communicate()


def test_starts_of_a_console_that_are_refused(tmp_path: Path) -> None:
    for options, said in (
        (("--console", "--detach"), "start `odradek console --local DIR`"),
        (("--console", "--state", str(tmp_path / "x")), "one directory of manifests"),
    ):
        with up(tmp_path, *options) as runtime:
            _, errors = runtime.communicate()
        assert runtime.returncode == 2
        assert said in " ".join(errors.split())
