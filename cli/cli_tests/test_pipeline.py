"""`odradek pipeline`: refusals at once, a run to its end, Ctrl-C, and the demo's verdict."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from odradek_testkit.engines import RunningBroker
from spark_tests.pipelines import Pipelines

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "pipelines"
PATIENCE_S = 240.0

spark = pytest.mark.spark


def odradek(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "odradek_cli", "pipeline", *arguments],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip


@pytest.fixture
def pipelines(tmp_path: Path) -> Pipelines:
    return Pipelines("", tmp_path)


def manifest(directory: Path, **spec: object) -> Path:
    path = directory / "pipeline.yaml"
    document = {
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "SparkPipeline",
        "metadata": {"name": "copy"},
        "spec": {"cluster": {"name": "main"}, **spec},
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("example", ["web-activity", "log-collection", "late-data", "join"])
def test_a_plan_says_what_would_happen(example: str) -> None:
    done = odradek("plan", "-f", str(EXAMPLES / example), "--bootstrap", "localhost:1")
    assert done.returncode == 0, done.stderr
    assert "read " in done.stdout
    assert "write " in done.stdout


def test_a_wrong_manifest_is_refused_by_its_field(tmp_path: Path) -> None:
    path = manifest(tmp_path, sources=[{"topics": ["a"], "format": {"type": "json"}}],
                    sink={"console": {}})  # fmt: skip
    done = odradek("run", "-f", str(path), "-b", "localhost:1")
    assert done.returncode == 1
    assert (
        "SparkPipeline default/copy: spec.sources[0].format.schema: json needs one" in done.stderr
    )


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = manifest(tmp_path, sources=[{"topics": ["a"]}], sink={"console": {}})
    done = odradek("plan", "-f", str(path))
    assert done.returncode == 1
    assert "KafkaCluster default/main does not run here" in done.stderr


@spark
@pytest.mark.timeout(500)
def test_a_run_to_its_end_and_then_a_refusal(tmp_path: Path) -> None:
    """Its status stays; an unknown topic is refused by its field, and not tried again."""
    pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    with RunningBroker({"auto.create.topics.enable": "false"}) as broker:
        pipelines = Pipelines(broker.bootstrap, tmp_path)
        topic, copy = pipelines.topic(1), pipelines.topic(1)
        pipelines.produce(topic, [{"id": n} for n in range(10)], key=b"k")
        source = {"topics": [topic], "format": {"type": "json", "schema": "id INT"}}
        sink = {"topic": {"name": copy}}
        path = manifest(tmp_path, sources=[source], sink=sink, mode="availableNow")
        done = odradek("run", "-f", str(path), "-b", broker.bootstrap)
        assert done.returncode == 0, done.stderr
        assert pipelines.values(copy) == [{"id": n} for n in range(10)]
        said = odradek("status", "-f", str(path), "--json")
        assert json.loads(said.stdout)["default/copy"]["state"] == "Completed"
        manifest(tmp_path, sources=[{"topics": ["nobody"]}], sink={"console": {}})
        done = odradek("run", "-f", str(path), "-b", broker.bootstrap)
        assert done.returncode == 1
        assert "spec.sources[0].topics[0]: topic nobody does not exist" in done.stderr


@spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_ctrl_c_and_the_demo(tmp_path: Path) -> None:
    with RunningBroker({}) as broker:
        pipelines = Pipelines(broker.bootstrap, tmp_path)
        topic = pipelines.topic(1)
        path = manifest(tmp_path, sources=[{"topics": [topic]}], sink={"console": {}})
        running = subprocess.Popen(
            [sys.executable, "-m", "odradek_cli", "pipeline", "run", "-f", str(path),
             "-b", broker.bootstrap],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        status = tmp_path / ".odradek" / "pipeline.default.copy" / "status.json"
        deadline = time.monotonic() + PATIENCE_S
        while not (status.exists() and json.loads(status.read_text())["state"] == "Running"):
            assert time.monotonic() < deadline
            assert running.poll() is None
            time.sleep(0.2)
        driver = json.loads(status.read_text())["pid"]
        os.kill(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0, said
        assert "default/copy: stopped." in said
        assert not Path(f"/proc/{driver}").exists()
        assert json.loads(status.read_text())["state"] == "Stopped"
        done = odradek("demo", "-b", broker.bootstrap, "--seconds", "10")
        assert done.returncode == 0, done.stderr + done.stdout
        assert "equal; 0 restarts" in done.stdout
        print(done.stdout)
