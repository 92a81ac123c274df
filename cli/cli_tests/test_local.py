"""odradek local and plan, as a user types them: real processes, Ctrl-C, a killed runtime."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from odradek_api.kafka_cluster.status import BrokerStatus, DiskStatus, KafkaClusterStatus
from odradek_api.pipeline.status import JobStatus
from odradek_cli.local import _lines, _rows
from odradek_cli.local_start import at_work, failure
from odradek_operator.local.pipelines import PipelineReport
from odradek_operator.local.runtime import ClusterReport
from odradek_testkit.engines import answers_api_versions

DEADLINE_S = 60.0
MANIFESTS = """
apiVersion: odradek.dev/v1alpha1
kind: KafkaCluster
metadata: {name: main}
spec: {brokers: 1}
---
apiVersion: odradek.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {cluster: {name: main}, partitions: 2}
"""


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    directory = tmp_path / "m"
    directory.mkdir()
    (directory / "all.yaml").write_text(MANIFESTS)
    return directory


def odradek(
    *args: str, stdin: str = "", code: int = 0, patience_s: float = 240.0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "odradek_cli", *args],
        input=stdin, capture_output=True, text=True, timeout=patience_s, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(what: str, true: object) -> None:
    assert callable(true)
    give_up = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < give_up, what
        time.sleep(0.05)


def test_up_status_plan_down(manifests: Path) -> None:
    where = ("-f", str(manifests))
    assert odradek("plan", *where).stdout == (
        "KafkaCluster default/main:\n"
        "  start broker 0: broker 0 does not exist yet\n"
        "  wait: topic orders can be created when the cluster answers\n"
    )
    assert not (manifests / ".odradek").exists(), "a plan changes nothing"
    up = odradek("local", "up", "--detach", *where)
    key, bootstrap = up.stdout.split()
    assert key == "default/main"
    assert answers_api_versions(bootstrap)
    try:
        found = json.loads(odradek("local", "status", "--json", *where).stdout)
        assert found["clusters"][key]["topics"]["default/orders"]["partitions"] == 2
        said = odradek("local", "status", *where).stdout
        metrics = f"http://{found['clusters'][key]['admin']['0']}/metrics"
        assert f"metrics: 0 {metrics}" in said
        with urllib.request.urlopen(metrics) as answer:
            assert answer.status == 200
        assert "1 of 1 brokers ready" in said
        assert odradek("local", "plan", *where).stdout == (
            "KafkaCluster default/main: nothing to do\n"
        )
        assert "orders" in odradek(*where, "topics", "list").stdout
        again = odradek("local", "up", *where, code=1)
        assert f"pid {found['pid']}" in again.stderr
    finally:
        assert "--yes" in odradek("local", "down", "--delete", *where, code=2).stderr
        odradek("local", "down", "--delete", "--yes", *where)
    assert gone(found["pid"])
    assert all(gone(pid) for pid in found["clusters"][key]["pids"].values())
    assert not (manifests / ".odradek").exists()
    assert "no local runtime is running" in odradek("local", "status", *where, code=1).stderr


def test_ctrl_c_stops_the_brokers_and_a_killed_runtime_leaves_them_to_down(
    manifests: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    where = ("-f", str(manifests), "--state", str(state))

    def up() -> tuple[subprocess.Popen[bytes], list[int]]:
        (state / "status.json").unlink(missing_ok=True)
        with open(tmp_path / "up.out", "ab") as output:
            runtime = subprocess.Popen(
                [sys.executable, "-m", "odradek_cli", "local", "up", *where],
                stdout=output, stderr=output,
            )  # fmt: skip

        def ready() -> bool:
            try:
                found = json.loads((state / "status.json").read_text())["clusters"]
            except (OSError, ValueError, KeyError):
                return False
            return any(c["status"].get("readyBrokers") == 1 for c in found.values())

        wait_until("one broker is ready", ready)
        found = json.loads((state / "status.json").read_text())["clusters"]["default/main"]
        return runtime, list(found["pids"].values())

    runtime, pids = up()
    runtime.send_signal(signal.SIGINT)
    assert runtime.wait(DEADLINE_S) == 0
    assert all(gone(pid) for pid in pids)
    assert "clients reach it at 127.0.0.1:" in (tmp_path / "up.out").read_text()

    runtime, pids = up()
    runtime.kill()
    runtime.wait()
    assert not any(gone(pid) for pid in pids), "brokers outlive their runtime"
    assert "stopped 1 brokers" in odradek("local", "down", *where).stderr
    assert all(gone(pid) for pid in pids)


def test_disks_and_brokers_that_ended_are_shown() -> None:
    """Among the lines of `local up`, and in the last column of the table."""
    ended = "it ended with exit code 75: /data is full; next start after 4 s, at 12:00:04 UTC"
    status = KafkaClusterStatus(
        brokers=[BrokerStatus(id=0, not_ready=ended)],
        disks=[DiskStatus(broker=0, state="Ended", message=f"broker 0: {ended}")],
    )
    report = ClusterReport(status, ["wait: broker 0 is crashed"])
    assert f"default/main: broker 0: {ended}" in _lines("default/main", report)
    assert _rows(report)[0][-1] == ended


def test_errors_are_one_line(manifests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (manifests / "all.yaml").write_text(MANIFESTS.replace("brokers: 1", "brokrs: 1"))
    for command in (("plan",), ("local", "up"), ("local", "up", "--detach"), ("local", "plan")):
        said = odradek(*command, "-f", str(manifests), code=1).stderr
        assert said == (
            "odradek: all.yaml: KafkaCluster default/main: spec.brokrs: unknown field; did you "
            "mean brokers?\n"
        )
    assert "no such file" in odradek("plan", "-f", "/nowhere.yaml", code=1).stderr
    (manifests / "all.yaml").write_text(MANIFESTS.replace("brokers: 1", "engine: apache"))
    monkeypatch.delenv("ODRADEK_KAFKA_JARS", raising=False)
    said = odradek("local", "up", "-f", str(manifests), code=1).stderr
    assert "spec.engine: engine apache needs java" in said


PIPELINE = """
---
apiVersion: odradek.dev/v1alpha1
kind: SparkPipeline
metadata: {name: count}
spec:
  cluster: {name: main}
  sources: [{topics: [orders]}]
  steps: [{sql: "STEP"}]
  sink: {console: {}}
"""
GOOD_STEP = "SELECT * FROM source"


def test_pipelines_of_the_manifests_are_checked(manifests: Path) -> None:
    """By plan and by up, before anything starts."""
    path = manifests / "all.yaml"
    path.write_text(MANIFESTS + PIPELINE.replace("STEP", "SELEC 1"))
    wrong = "SparkPipeline default/count: spec.steps[0].sql: begins with 'SELEC' and is not a query"
    where = ("-f", str(manifests))
    for command in (("plan",), ("local", "plan"), ("local", "up"), ("local", "up", "--detach")):
        assert wrong in odradek(*command, *where, code=1).stderr
    found = odradek("plan", "--json", *where, code=1)
    assert wrong in json.loads(found.stdout)["problems"][0]
    assert not (manifests / ".odradek").exists()
    path.write_text(MANIFESTS + PIPELINE.replace("STEP", GOOD_STEP))
    assert odradek("plan", *where).stdout == (
        "KafkaCluster default/main:\n"
        "  start broker 0: broker 0 does not exist yet\n"
        "  wait: topic orders can be created when the cluster answers\n"
        "SparkPipeline default/count:\n"
        "  start when its clusters and topics are ready\n"
    ), "a declared topic need not exist yet"


def test_topics_of_pipelines_are_looked_up_on_a_running_cluster(manifests: Path) -> None:
    where = ("-f", str(manifests))
    odradek("local", "up", "--detach", *where)
    try:
        pipeline = PIPELINE.replace("STEP", "SELECT 1").replace("[orders]", "[ordrs]")
        (manifests / "pipeline.yaml").write_text(pipeline)
        said = odradek("plan", *where, code=1).stderr
        assert "spec.sources[0].topics[0]: topic ordrs does not exist on" in said
        assert "did you mean orders?" in said
    finally:
        odradek("local", "down", *where)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (PipelineReport(pid=1), None),
        (PipelineReport(waits="Topic orders is not ready"), None),
        (PipelineReport(pid=1, status=JobStatus(pipeline="p", state="Starting")), None),
        (PipelineReport(pid=1, status=JobStatus(pipeline="p", state="Running")), ""),
        (PipelineReport(status=JobStatus(pipeline="p", state="Completed")), ""),
        (PipelineReport(waits="spec.suspend is true", idle=True), ""),
        (PipelineReport(), "ended at its start"),
        (PipelineReport(pid=2, restarts=1), "ended at its start"),
        (
            PipelineReport(status=JobStatus(pipeline="p", state="Failed", field="a", message="b")),
            "SparkPipeline p: a: b",
        ),
    ],
)
def test_when_a_detached_start_is_over(report: PipelineReport, said: str | None) -> None:
    """None: it waits on; empty: the pipeline is at work; else the reason of the failure."""
    found = failure("p", report)
    if said:
        assert said in found[0]
    else:
        assert not found
        assert at_work(report) == (said is not None)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_detached_start_fails_with_its_pipeline(manifests: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    where = ("-f", str(manifests))
    path = manifests / "all.yaml"
    path.write_text(MANIFESTS + PIPELINE.replace("STEP", "SELECT nope FROM source"))
    try:
        failed = odradek("local", "up", "--detach", *where, code=1)
        assert "SparkPipeline default/count: spec.steps[0].sql" in failed.stderr
        assert "nope" in failed.stderr
        assert failed.stdout.startswith("default/main"), "the cluster is there"
        odradek("local", "down", *where)
        path.write_text(MANIFESTS + PIPELINE.replace("STEP", GOOD_STEP))
        odradek("local", "up", "--detach", *where)
        found = json.loads(odradek("local", "status", "--json", *where).stdout)
        assert found["pipelines"]["default/count"]["status"]["state"] == "Running"
    finally:
        odradek("local", "down", *where)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_demo_restarts_every_broker_and_nobody_notices(manifests: Path) -> None:
    (manifests / "all.yaml").write_text(MANIFESTS.replace("brokers: 1", "brokers: 3"))
    done = odradek("local", "demo", "-f", str(manifests), "--no-spark", "--json")
    found = json.loads(done.stdout)
    assert found["brokers_restarted"] == "3 of 3"
    assert (found["lost"], found["duplicated"], found["errors"]) == (0, 0, 0)
    assert found["preferred_leaders_percent"] == 100
    assert found["writes_acknowledged"] > 0
    assert sorted(b["broker"] for b in found["brokers"]) == [0, 1, 2]
    assert all(b["whole_after"].endswith(" s") for b in found["brokers"])
    assert "\x1b" not in done.stderr, "a pipe gets plain lines"
    assert done.stderr.count("restart broker") >= 3, done.stderr


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_spark_counts_through_the_restart_of_every_broker(manifests: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    (manifests / "all.yaml").write_text(MANIFESTS.replace("brokers: 1", "brokers: 3"))
    done = odradek("local", "demo", "-f", str(manifests), "--spark", "--json", patience_s=1200)
    found = json.loads(done.stdout)
    assert found["brokers_restarted"] == "3 of 3"
    assert found["spark_equals_what_was_written"] == "yes"
    assert found["spark_counted"] == found["writes_acknowledged"] > 0
    assert found["spark_driver_restarts"] == 0
