"""The examples as they stand in examples/, with the data they make themselves."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from confluent_kafka import Message

from odradek_api.parse import load
from odradek_api.pipeline.job import Job
from odradek_testkit.engines import engine
from odradek_testkit.pipelines import Pipelines, headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"


def _data() -> Any:
    spec = importlib.util.spec_from_file_location("make_data", EXAMPLES / "make_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


data = _data()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Pipelines]:
    """A broker of the example's own: topics have the names that the manifests give them."""
    with engine()({"auto.create.topics.enable": "false"}) as running:
        yield Pipelines(running.bootstrap, tmp_path)


def run(
    spark: SparkSession, own: Pipelines, example: str, other: str = "", batch: int | None = None
) -> Any:
    """Its pipeline over what is there now; the spec is the manifest's but for `mode`."""
    from odradek_spark.jobs.run import JobRun

    directory = own.directory / example
    if not directory.exists():
        shutil.copytree(EXAMPLES / example, directory)
    (pipeline,) = [r for r in load([directory]) if r.kind == "SparkPipeline"]
    sources = [msgspec.structs.replace(s, max_offsets_per_trigger=batch)
               for s in pipeline.spec.sources]  # fmt: skip
    job = Job(
        name=pipeline.name,
        spec=msgspec.structs.replace(pipeline.spec, mode="availableNow", sources=sources),
        clusters={"default/main": own.bootstrap, "default/analytics": other},
        checkpoint=str(own.directory / "checkpoint"),
        directory=str(directory),
    )
    made = JobRun(job)
    assert made.run_in(spark) == 0, made.status
    return made.status


def topics(own: Pipelines, example: str) -> None:
    for topic in [r for r in load([EXAMPLES / example]) if r.kind == "Topic"]:
        own.topic(topic.spec.partitions, topic.name)


@pytest.mark.long  # a whole example; test_jobs.py has its parts
def test_web_activity(spark: SparkSession, own: Pipelines) -> None:
    topics(own, "web-activity")
    sent = data.send(own.bootstrap, data.web_activity())
    run(spark, own, "web-activity")
    found = {(v["minute"], v["page"]): v["views"] for v in own.values("page-views")}
    expected = data.page_views(data.web_activity())
    over = max(at for _, _, _, at in data.web_activity()) - timedelta(seconds=30 + 60)
    closed = {k: n for k, n in expected.items() if k[0] <= over.isoformat()}
    assert len(closed) >= 4 * 8
    seen = {(m.replace(".000Z", "+00:00"), page): n for (m, page), n in found.items()}
    assert closed.items() <= seen.items()
    assert all(expected[key] == n for key, n in seen.items())
    assert len(own.records("page-views")) == len(found), "a window was written twice"
    assert len(own.records("visits-dead")) == sent - sum(expected.values()) > 0


def test_log_collection(spark: SparkSession, own: Pipelines) -> None:
    topics(own, "log-collection")
    shutil.copytree(EXAMPLES / "log-collection", own.directory / "log-collection")
    logs = own.directory / "log-collection" / "logs"
    lines = data.log_files(logs, files=3)
    run(spark, own, "log-collection")
    data.log_files(logs, files=4, seed=2)  # three are there already, one is new
    (logs / "readme.txt").write_text("not a log\n")
    run(spark, own, "log-collection")
    found = own.records("log-lines")
    values = [json.loads(m.value() or b"") for m in found]
    assert {v["file"] for v in values} == {f"app-{n}.log" for n in range(4)}
    assert Counter(v["message"] for v in values if v["file"] != "app-3.log") == Counter(
        f"request {n}" for n in range(lines)
    )
    assert {v["severity"] for v in values} == {3, 4, 6, 7}
    assert all((m.key() or b"").startswith(b"host-") for m in found)
    dead = own.records("log-lines-dead")
    assert [m.value() for m in dead] == [b"Traceback (most recent call last):"] * len(dead)
    assert {headers(m)["odradek.file"].rpartition(b"/")[2] for m in dead} >= {b"app-0.log"}


@pytest.mark.long  # likewise, with a second broker
def test_mirror(spark: SparkSession, own: Pipelines, pipelines: Pipelines) -> None:
    topics(own, "mirror")
    data.send(own.bootstrap, data.orders())
    run(spark, own, "mirror", pipelines.bootstrap)
    data.send(own.bootstrap, data.orders(50, seed=2))
    run(spark, own, "mirror", pipelines.bootstrap)
    for topic in ("orders", "payments"):
        there = [_all_of(m) for m in own.records(topic)]
        here = [_all_of(m) for m in pipelines.records(f"main.{topic}")]
        assert sorted(here, key=_place) == sorted(there, key=_place)
        assert len(there) > 100


def _all_of(m: Message) -> tuple[object, ...]:
    return (m.partition(), m.offset(), m.key(), m.value(), m.timestamp()[1], m.headers())


def _place(one: tuple[object, ...]) -> tuple[object, ...]:
    return one[:2]


@pytest.mark.long
def test_late_data(spark: SparkSession, own: Pipelines) -> None:
    topics(own, "late-data")
    data.send(own.bootstrap, data.readings())
    run(spark, own, "late-data", batch=400)  # the watermark moves from batch to batch
    late = {"id": "late", "sensor": "s0", "celsius": 1.0, "at": data.START.isoformat()}
    own.produce("readings", [late])
    said = run(spark, own, "late-data")
    assert said.queries["main"].late_rows == 1
    rows = spark.read.parquet(str(own.directory / "late-data" / "table")).collect()
    assert sorted(row.id for row in rows) == sorted(f"r{i}" for i in range(1000))
    days = {at.date().isoformat() for _, _, _, at in data.readings()}
    assert {str(row.day) for row in rows} == days


@pytest.mark.long
def test_join(spark: SparkSession, own: Pipelines) -> None:
    topics(own, "join")
    data.send(own.bootstrap, data.advertisements())
    run(spark, own, "join")
    found = own.values("clicked")
    assert sorted(v["visitor"] for v in found) == sorted(f"v{i}" for i in range(4, 400, 8))


@pytest.mark.long  # three sinks; test_sinks.py and test_lookups.py have its parts
def test_enrich(spark: SparkSession, own: Pipelines) -> None:
    topics(own, "enrich")
    data.send(own.bootstrap, data.purchases())
    said = run(spark, own, "enrich")
    expected = data.enriched(data.purchases())
    assert sum(name is None for _, name, _ in expected.values()) > 10, "all customers are known"
    rows = spark.read.parquet(str(own.directory / "enrich" / "table")).collect()
    assert {row.id: (row.cents, row.name, row.city) for row in rows} == expected
    assert len(rows) == len(expected)
    keys = {(m.key() or b"").decode() for m in own.records("purchases-by-city")}
    assert keys == {city for _, _, city in expected.values()}
    assert len(own.records("purchases-by-city")) == len(expected)
    large = {key: one for key, one in expected.items() if one[0] >= 9000}
    assert sorted(v["id"] for v in own.values("large-purchases")) == sorted(large)
    assert said.queries["large"].rows_out == len(large)
