"""Drivers as processes: killed in the middle, and brokers that restart under them.

A driver costs half a minute of a loaded machine; so these are few, and long.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek_api.pipeline.status import JobStatus
from odradek_operator.local.runtime import LocalRuntime
from odradek_spark import config
from odradek_testkit.pipelines import Pipelines

import msgspec  # isort: skip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

PATIENCE_S = 400.0  # a driver on a busy machine
JSON = {"type": "json", "schema": "id INT NOT NULL"}


def eventually(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return seen


@contextmanager
def driver(pipelines: Pipelines, job: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process group of its own; nothing of it is left at the end."""
    path = pipelines.directory / "job.json"
    path.write_text(json.dumps(job))
    (pipelines.directory / "status.json").unlink(missing_ok=True)
    with open(pipelines.directory / "driver.out", "ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "odradek_spark.main", str(path)],
            stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the driver and its JVM, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def status(pipelines: Pipelines) -> JobStatus | None:
    try:
        text = (pipelines.directory / "status.json").read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(text, type=JobStatus)


def batches(pipelines: Pipelines) -> int:
    said = status(pipelines)
    return said.queries["main"].batch if said and "main" in said.queries else -1


@pytest.mark.parametrize("kind", ["table", "topic"])
def test_a_killed_driver_goes_on_where_it_was(
    pipelines: Pipelines, spark: SparkSession, kind: str
) -> None:
    """1. A topic is read into a table, or into a topic, 200 records per batch.
    2. After some batches the driver is killed with -9, in the middle of another.
    3. The next one goes on; the table has every record once, the topic has no gap.
    """
    topic, copy = pipelines.topic(2), pipelines.topic(2)
    count = 6000
    pipelines.produce(topic, ({"id": n} for n in range(count)))
    sinks: Any = {"table": {"path": "table"}, "topic": {"name": copy, "key": "id"}}

    def job(records: int) -> dict[str, Any]:
        source = {"topics": [topic], "format": JSON, "maxOffsetsPerTrigger": records}
        made = pipelines.document(sources=[source], sink={kind: sinks[kind]})
        return made | {"master": "local[2,4]"}

    with driver(pipelines, job(200)) as first:
        eventually(lambda: batches(pipelines) >= 3, "no batch was done")
        kill(first)
    assert batches(pipelines) < count // 200 - 2, "it was killed too late to say anything"
    with driver(pipelines, job(3000)) as second:
        assert second.wait(PATIENCE_S) == 0, (pipelines.directory / "driver.out").read_text()
    if kind == "table":
        path = str(pipelines.directory / "table")
        assert sorted(row.id for row in spark.read.parquet(path).collect()) == list(range(count))
    else:
        written = [value["id"] for value in pipelines.values(copy)]
        assert set(written) == set(range(count))
        print(f"{len(written) - count} records of the topic are there twice")


def test_a_driver_in_one_pod(pipelines: Pipelines, spark: SparkSession, tmp_path: Path) -> None:
    """As the image starts it: spark-submit with a local master, which the job names too; relative
    paths of tables are in the pod's /data, here another directory."""
    from odradek_spark.session.jars import jars

    topic = pipelines.topic(2)
    pipelines.produce(topic, ({"id": n} for n in range(100)))
    source = {"topics": [topic], "format": JSON}
    document = pipelines.document(sources=[source], sink={"table": {"path": "table"}})
    data = tmp_path / "data"
    document |= {"master": "local[1,8]", "data": str(data), "directory": "/nowhere"}
    path = tmp_path / "job.json"
    path.write_text(json.dumps(document))
    main = Path(config.__file__).parent / "main.py"
    command = [sys.executable, "-m", "odradek_spark.entrypoint", "driver", "--master",
               "local[1,8]", "--conf", "spark.ui.enabled=false", str(main), str(path)]  # fmt: skip
    env = dict(os.environ)
    env |= {"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1", "SPARK_LOCAL_IP": "127.0.0.1",
            "ODRADEK_SPARK_JARS": str(jars()[0].parent),
            "PYSPARK_PYTHON": sys.executable}  # fmt: skip
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = spark.read.parquet(str(data / "table")).collect()
    assert sorted(row.id for row in rows) == list(range(100))


def test_a_rolling_restart_does_not_disturb_a_query(tmp_path: Path, spark: SparkSession) -> None:
    """1. Three brokers, a pipeline into a table, a producer that goes on all the time.
    2. All brokers are restarted, one after the other.
    3. The query never failed, and the table is what was produced.
    """
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    api = "apiVersion: odradek.dev/v1alpha1"
    cluster = manifests / "cluster.yaml"
    text = (
        f"{api}\nkind: KafkaCluster\n"
        "metadata: {name: main, annotations: {}}\nspec: {brokers: 3}\n"
    )
    cluster.write_text(text)
    (manifests / "topic.yaml").write_text(
        f"{api}\nkind: Topic\nmetadata: {{name: numbers}}\n"
        "spec: {cluster: {name: main}, partitions: 3, replicationFactor: 3}\n"
    )
    spec = {
        "cluster": {"name": "main"},
        "sources": [{"topics": ["numbers"], "format": JSON}],
        "sink": {"table": {"path": "../table"}},
        "trigger": "1 second",
        "restartPolicy": {"type": "Never"},
    }
    (manifests / "pipeline.yaml").write_text(
        json.dumps(
            {
                "apiVersion": "odradek.dev/v1alpha1",
                "kind": "SparkPipeline",
                "metadata": {"name": "numbers"},
                "spec": spec,
            }
        )
    )
    stop = threading.Event()
    with LocalRuntime([manifests], tmp_path / "state") as runtime:
        try:
            eventually(lambda: runtime.one_pass().settled, "the cluster did not come up")

            def seen() -> Any:
                one = runtime.one_pass().pipelines["default/numbers"]
                return one.status

            eventually(lambda: (s := seen()) and s.queries.get("main"), "no batch was done")
            bootstrap = runtime.report.clusters["default/main"].status.bootstrap_servers
            produced = _produce_until(stop, bootstrap)
            before = dict(runtime.report.clusters["default/main"].pids)
            cluster.write_text(text.replace("{}}", '{odradek.dev/restart: "1"}}'))

            def rolled() -> bool:
                report = runtime.one_pass()
                pids = report.clusters["default/main"].pids
                return report.settled and all(pids.get(b) != pid for b, pid in before.items())

            eventually(rolled, "the roll did not end")
            stop.set()
            produced.join()
            count = produced.count
            table = tmp_path / "table"

            def read() -> list[int]:
                runtime.one_pass()
                return [row.id for row in spark.read.parquet(str(table)).collect()]

            eventually(lambda: len(read()) >= count, "records are missing")
            assert sorted(read()) == list(range(count))
            final = runtime.one_pass().pipelines["default/numbers"]
            assert final.restarts == 0
            assert final.status is not None
            assert final.status.state == "Running"
            assert count > 100
        finally:
            stop.set()
            runtime.stop_brokers()


def _produce_until(stop: threading.Event, bootstrap: str) -> Any:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def work() -> None:
        n = 0
        while not stop.wait(0.01):
            producer.produce("numbers", json.dumps({"id": n}), key=str(n))
            producer.poll(0)
            n += 1
        assert producer.flush(120) == 0
        thread.count = n  # type: ignore[attr-defined]

    thread = threading.Thread(target=work)
    thread.start()
    return thread
