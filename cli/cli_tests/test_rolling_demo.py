"""`odradek local demo`: its output, its size with little memory, and its end by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from odradek_cli.demo_clients import ClientsSeen
from odradek_cli.quickstart import QUICKSTART
from odradek_cli.rolling_demo import MEMORY_MB, _as_the_machine_allows
from odradek_cli.spark_guest import spark_absent


def processes_with(directory: Path) -> list[int]:
    """Processes that were started with this directory in their command line or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(str(directory) in word for word in words):
            found.append(process.pid)
    return found


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "1. Starting"),
        (signal.SIGTERM, "start brokers"),
        (signal.SIGINT, "2. Writing"),
        (signal.SIGTERM, "restart broker"),
    ],
)
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: int, moment: str) -> None:
    interrupt(tmp_path, number, moment, "--no-spark", memory_mb="1000")


@pytest.mark.long  # Spark starts twice, next to three brokers: a minute of CPU
@pytest.mark.spark
@pytest.mark.parametrize(
    ("number", "moment"), [(signal.SIGINT, "Starting Spark"), (signal.SIGINT, "restart broker")]
)
def test_a_signal_leaves_nothing_of_spark_behind(
    tmp_path: Path, number: int, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.environ.get("ODRADEK_REQUIRE_TOOLS"):
        pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    # Java ignores TMPDIR.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Djava.io.tmpdir={tmp_path}")
    interrupt(tmp_path, number, moment, "--spark", memory_mb="2500")


def interrupt(directory: Path, number: int, moment: str, flag: str, *, memory_mb: str) -> None:
    """The directory is the demo's own TMPDIR: brokers, ports and files would show there."""
    environment = {**os.environ, "TMPDIR": str(directory), MEMORY_MB: memory_mb}
    demo = subprocess.Popen(
        [sys.executable, "-m", "odradek_cli", "local", "demo", flag],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert demo.stderr is not None
    said = []
    for line in demo.stderr:
        said.append(line)
        if moment in line:
            break
    demo.send_signal(number)
    rest = threading.Thread(target=demo.stderr.read)
    rest.start()
    code = demo.wait()
    rest.join()
    demo.stderr.close()
    assert moment in said[-1], "".join(said)
    assert code != 0
    assert list(directory.iterdir()) == []
    assert processes_with(directory) == []


@pytest.mark.long  # three brokers with TLS are restarted under load: half a minute of CPU
def test_the_secured_demo_replaces_its_ca_and_nobody_notices(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), MEMORY_MB: "1000"}
    done = subprocess.run(
        [sys.executable, "-m", "odradek_cli", "local", "demo", "--secure", "--json"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert (rows["lost"], rows["duplicated"], rows["errors"]) == (0, 0, 0)
    assert rows["brokers_restarted"] == "3 of 3"
    assert rows["ca_replaced"].startswith("yes")
    assert (rows["client_without_login"], rows["client_without_acl"]) == ("refused", "refused")
    assert list(tmp_path.iterdir()) == []
    assert processes_with(tmp_path) == []


def brokers_of(manifests: Path) -> str:
    text = (manifests / "cluster.yaml").read_text()
    return text[text.index("brokers: ") :].split()[1]


@pytest.mark.parametrize(("megabytes", "brokers"), [("3072", "6"), ("3071", "3"), ("500", "3")])
def test_fewer_brokers_where_memory_is_short(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    megabytes: str,
    brokers: str,
) -> None:
    monkeypatch.setenv(MEMORY_MB, megabytes)
    for path in QUICKSTART.glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text())
    (cluster,) = [p for p in tmp_path.iterdir() if "kind: KafkaCluster" in p.read_text()]
    cluster.rename(tmp_path / "cluster.yaml")
    _as_the_machine_allows(tmp_path)
    assert brokers_of(tmp_path) == brokers
    said = capsys.readouterr().err
    assert (f"{megabytes} MB of memory are free" in said) == (brokers == "3")


def test_spark_takes_no_part_without_java_or_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    assert "1900 MB are free" in spark_absent(1900 << 20)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "apt-get install -y openjdk" in spark_absent(8 << 30)


def test_latency_and_silence_of_a_step() -> None:
    seen = ClientsSeen(answers=[(1.0, 5.0), (2.0, 7.0), (2.5, 90.0), (9.0, 400.0)])
    assert seen.between(1.5, 4.0) == (90.0, 1.5)
    assert seen.between(5.0, 8.0) == (0.0, 3.0)
