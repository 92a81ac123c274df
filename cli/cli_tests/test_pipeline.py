"""`odradek pipeline`: refusals at once, a run to its end, Ctrl-C, and the demo's verdict."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from odradek_api.parse import load
from odradek_api.pipeline.job import Job
from odradek_api.pipeline.status import FlowStatus, JobStatus, QueryProgress
from odradek_cli.pipeline_checks import sql_problem, type_problems
from odradek_cli.pipeline_plans import pipeline_plans
from odradek_cli.pipeline_screen import failures, labelled, pipeline_rows
from odradek_operator.local.pipelines import PipelineReport
from odradek_protocol.client import KafkaClient
from odradek_testkit.engines import RunningBroker
from odradek_testkit.pipelines import Pipelines

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
    done = odradek("plan", "-f", str(EXAMPLES / example), "--offline")  # no cluster runs
    assert done.returncode == 0, done.stderr
    assert "read " in done.stdout
    assert "write " in done.stdout


def test_a_plan_of_a_declarative_project(tmp_path: Path) -> None:
    example = EXAMPLES / "declarative"
    done = odradek("plan", "-f", str(example), "--bootstrap", "localhost:1", "--offline")
    assert done.returncode == 0, done.stderr
    assert f"run the project in {example / 'project'}: an update every 10 seconds" in done.stdout
    path = manifest(tmp_path, sdp={"path": "nowhere"})
    done = odradek("plan", "-f", str(path), "--bootstrap", "localhost:1", "--offline")
    assert done.returncode == 1
    assert f"spec.sdp.path: {tmp_path / 'nowhere'} has no spark-pipeline.yml" in done.stderr


def test_each_flow_is_a_row_with_its_state() -> None:
    status = JobStatus(
        pipeline="default/p", state="Running",
        flows=[FlowStatus(name="counts", state="Queued"), FlowStatus(name="in", state="Running")],
        queries={"in": QueryProgress(batch=3, input_rate=12.0, lag={"visits": 7})},
    )  # fmt: skip
    queued, running = pipeline_rows("default/p", PipelineReport(status=status))
    assert labelled(queued) == "default/p counts Queued, restarts 0"
    assert labelled(running).startswith("default/p in Running, batch 3, in/s 12")
    assert ", lag 7," in labelled(running)


def test_without_tests_there_is_nothing_to_run(tmp_path: Path) -> None:
    path = manifest(tmp_path, sources=[{"topics": ["a"]}], sink={"console": {}})
    done = odradek("test", "-f", str(path))
    assert done.returncode == 1
    assert "no pipeline of these manifests has spec.tests" in done.stderr


@spark
def test_the_tests_of_a_manifest_run_without_a_cluster(tmp_path: Path) -> None:
    """In one Spark: one that passes and one that fails; the row that differs is shown."""
    pytest.importorskip("pyspark", reason="pyspark is missing: make spark")
    rows = {"source": [{"id": 1}, {"id": 2}]}
    path = manifest(
        tmp_path, sink={"console": {}},
        sources=[{"topics": ["a"], "format": {"type": "json", "schema": "id INT"}}],
        steps=[{"sql": "SELECT id + 1 AS id FROM source"}],
        tests=[{"name": "right", "rows": rows, "expect": [{"id": 3}, {"id": 2}]},
               {"name": "wrong", "rows": rows, "expect": [{"id": 3}]}],
    )  # fmt: skip
    done = odradek("test", "-f", str(path))
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [
        "passed default/copy: right",
        "FAILED default/copy: wrong",
        '  unexpected {"id":2}',
    ]


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


def test_a_plan_of_the_manifests_says_what_happens_to_pipelines(tmp_path: Path) -> None:
    """`odradek plan`, with a runtime that reports a pipeline at work."""
    path = manifest(tmp_path, sources=[{"name": "source", "topics": ["a"]}], sink={"console": {}})
    (wanted,) = load([path])
    key, report = wanted.key, PipelineReport(pid=1)
    assert pipeline_plans([wanted], {}, tmp_path) == {
        key: ["start when its clusters and topics are ready"]
    }
    job = tmp_path / "pipeline.default.copy" / "job.json"
    job.parent.mkdir()
    job.write_bytes(msgspec.json.encode(Job(name="copy", spec=wanted.spec)))
    assert pipeline_plans([wanted], {key: report}, tmp_path) == {key: []}
    changed = replace(wanted, spec=msgspec.structs.replace(wanted.spec, trigger="9 seconds"))
    assert pipeline_plans([changed], {key: report}, tmp_path) == {
        key: ["restart from its checkpoint: the spec changed"]
    }
    suspended = replace(wanted, spec=msgspec.structs.replace(wanted.spec, suspend=True))
    assert pipeline_plans([suspended], {key: report}, tmp_path) == {key: ["stop: spec.suspend"]}
    assert pipeline_plans([suspended], {}, tmp_path) == {key: []}
    assert pipeline_plans([], {key: report}, tmp_path) == {
        key: ["stop: it is not in the manifests any more"]
    }


def test_a_plan_checks_what_spark_would_refuse_later(tmp_path: Path) -> None:
    """Each by its field, before Spark starts: files, functions, SQL, types; then the topics."""
    (tmp_path / "steps.py").write_text("def other(frame):\n    return frame\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    source = {"topics": ["visits"], "format": {"type": "json", "schema": "id INT, who STRNG"}}
    steps = [
        {"sql": "SELEC * FROM source"},
        {"python": "missing.py", "function": "f"},
        {"python": "steps.py", "function": "f"},
        {"python": "broken.py", "function": "f"},
    ]
    path = manifest(tmp_path, sources=[source], steps=steps, sink={"topic": {"name": "counts"}})
    with RunningBroker({"auto.create.topics.enable": "false"}, directory=tmp_path / "b") as broker:
        done = odradek("plan", "-f", str(path), "-b", broker.bootstrap)
        with KafkaClient(broker.bootstrap) as client:
            assert not client.metadata().topics, "a plan changes nothing"
    assert done.returncode == 1
    for expected in (
        "spec.sources[0].format.schema: STRNG is not a type of Spark; did you mean STRING?",
        "spec.steps[0].sql: begins with 'SELEC' and is not a query; did you mean SELECT?",
        f"spec.steps[1].python: file {tmp_path}/missing.py does not exist",
        "spec.steps[2].function: the code defines no function f",
        "spec.steps[3].python: line 1: invalid syntax",
        "spec.sources[0].topics[0]: topic visits does not exist on",
        "spec.sink.topic.name: topic counts does not exist on",
    ):
        assert expected in done.stderr
    done = odradek("plan", "-f", str(path), "-b", "localhost:1")
    assert done.returncode == 1
    assert "localhost:1: no broker answers there" in done.stderr


@pytest.mark.parametrize(
    "schema",
    [
        "id INT, name STRING",
        "at TIMESTAMP NOT NULL COMMENT 'when, STRNG x', n DECIMAL(10, 2)",
        "tags ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<x: INT, `odd name`: ARRAY<DOUBLE>>",
        '{"type": "record", "name": "r", "fields": []}',
    ],
)
def test_types_of_spark_are_accepted(schema: str) -> None:
    assert list(type_problems(schema)) == []


@pytest.mark.parametrize("sql", ["WITH a AS (SELECT 1) SELECT * FROM a", "-- x\n(select 1)"])
def test_queries_are_accepted(sql: str) -> None:
    assert sql_problem(sql) == ""


def test_a_line_of_progress_names_its_numbers() -> None:
    query = QueryProgress(batch=4, input_rate=12.0, lag={"a": 1_000}, rows_out=7,
                          watermark="2026-11-16T11:59:00.000Z")  # fmt: skip
    status = JobStatus(pipeline="default/p", state="Running", queries={"main": query})
    (row,) = pipeline_rows("default/p", PipelineReport(status=status))
    assert labelled(row) == (
        "default/p main Running, batch 4, in/s 12, done/s 0, batch ms 0, lag 1,000, rows out 7, "
        "watermark 2026-11-16T11:59:00.000Z, restarts 0"
    )
    (row,) = pipeline_rows("default/p", PipelineReport(waits="topic a is not ready"))
    assert labelled(row) == "default/p topic a is not ready, restarts 0"


def test_why_a_pipeline_failed_is_a_line_of_the_status() -> None:
    status = JobStatus(
        pipeline="default/p", state="Failed", field="spec.steps[0].sql", message="no"
    )
    assert failures({"default/p": PipelineReport(status=status), "x": PipelineReport()}) == [
        "SparkPipeline default/p: spec.steps[0].sql: no"
    ]


@spark
@pytest.mark.timeout(500)
def test_a_run_to_its_end_and_then_a_refusal(tmp_path: Path) -> None:
    """Its status is kept; an unknown topic is refused by its field, without retries."""
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
@pytest.mark.long  # three starts of Spark
@pytest.mark.timeout(900)
def test_spark_checks_a_plan_and_shows_rows(tmp_path: Path) -> None:
    with RunningBroker({}) as broker:
        pipelines = Pipelines(broker.bootstrap, tmp_path)
        topic = pipelines.topic(1)
        pipelines.produce(topic, [{"id": n} for n in range(10)])
        source = {"topics": [topic], "format": {"type": "json", "schema": "id INT"}}
        step = {"name": "twice", "sql": "SELECT 2 * id AS n FROM source"}
        path = manifest(tmp_path, sources=[source], steps=[step], sink={"console": {}})
        where = ("-f", str(path), "-b", broker.bootstrap)
        done = odradek("plan", "--spark", *where)
        assert done.returncode == 0, done.stderr
        assert "columns of twice: n int" in done.stdout
        done = odradek("preview", "--rows", "2", "--json", *where)
        assert json.loads(done.stdout)["views"][1]["rows"] == [["0"], ["2"]]
        step["sql"] = "SELECT 2 * nobody AS n FROM source"
        manifest(tmp_path, sources=[source], steps=[step], sink={"console": {}})
        done = odradek("plan", "--spark", *where)
        assert done.returncode == 1
        assert "spec.steps[0].sql: [UNRESOLVED_COLUMN" in done.stderr


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
        assert not psutil.pid_exists(driver)
        assert json.loads(status.read_text())["state"] == "Stopped"
        done = odradek("demo", "-b", broker.bootstrap, "--seconds", "10")
        assert done.returncode == 0, done.stderr + done.stdout
        assert "equal; 0 restarts" in done.stdout
        print(done.stdout)
