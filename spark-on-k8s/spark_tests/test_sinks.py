"""Several sinks of one pipeline, against a real broker: each row where it belongs, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek_api.pipeline.job import SpecError
from odradek_testkit.pipelines import Pipelines
from spark_tests.test_jobs import JSON, rows, run, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STEPS = [
    {"name": "even", "sql": "SELECT id, _offset FROM source WHERE id % 2 = 0"},
    {"name": "doubled", "sql": "SELECT id, 2 * id AS twice, _offset FROM even"},
]


def spec_of(source: str, all_of: str, even: str, **more: Any) -> dict[str, Any]:
    return {
        "sources": [{"topics": [source], "format": JSON}],
        "steps": STEPS,
        "sinks": [
            {"name": "all", "from": "source", "topic": {"name": all_of, "key": "id"}},
            {"name": "even", "from": "even",
             "topic": {"name": even, "delivery": "exactlyOnce", "writers": 2, "key": "id"}},
            {"name": "doubled", "table": {"path": "doubled"}},
            {"name": "newest", "table": {"path": "newest", "format": "delta", "key": ["id"]}},
        ],
        **more,
    }  # fmt: skip


@pytest.mark.long  # three runs of four sinks in Spark: 24 s
def test_each_sink_gets_its_view(spark: SparkSession, pipelines: Pipelines) -> None:
    """1. Four sinks of every kind of delivery, two of them of steps in the middle.
    2. A second run writes what is new, and nothing twice.
    3. A sink that is added then begins with the first record; the others go on.
    """
    source, all_of, even = pipelines.topic(2), pipelines.topic(1), pipelines.topic(1)
    late, dead = pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(source, [*rows(range(20)), b"{"])
    spec = spec_of(source, all_of, even, deadLetter={"topic": dead})
    said = run(spark, pipelines, **spec)
    names = {"all", "even", "doubled", "newest"}
    assert said.queries.keys() == names | {"dead-letter"}
    assert {n: said.queries[n].rows_out for n in ("all", "even", "newest")} == {
        "all": 20, "even": 10, "newest": 10,
    }  # fmt: skip
    pipelines.produce(source, rows(range(20, 30)))
    run(spark, pipelines, **spec)
    evens = list(range(0, 30, 2))
    assert sorted(r["id"] for r in pipelines.values(all_of)) == list(range(30))
    assert sorted(r["id"] for r in pipelines.values(even)) == evens
    assert table(spark, pipelines.directory / "doubled") == evens
    newest = spark.read.format("delta").load(str(pipelines.directory / "newest"))
    assert sorted((r.id, r.twice) for r in newest.collect()) == [(n, 2 * n) for n in evens]
    assert len(pipelines.records(dead)) == 1

    spec["sinks"].append({"name": "late", "from": "even", "topic": {"name": late}})
    run(spark, pipelines, **spec)
    assert sorted(r["id"] for r in pipelines.values(late)) == evens
    assert sorted(r["id"] for r in pipelines.values(even)) == evens


def test_one_sink_becomes_several(spark: SparkSession, pipelines: Pipelines) -> None:
    """`sink` continues as the sink with the name main: no record is written again."""
    source, first, second = pipelines.topic(1), pipelines.topic(1), pipelines.topic(1)
    sources = [{"topics": [source], "format": JSON}]
    to_first = {"topic": {"name": first, "delivery": "exactlyOnce"}}
    pipelines.produce(source, rows(range(5)))
    run(spark, pipelines, sources=sources, sink=to_first)
    sinks = [{"name": "main", **to_first}, {"name": "copy", "topic": {"name": second}}]
    pipelines.produce(source, rows(range(5, 8)))
    run(spark, pipelines, sources=sources, sinks=sinks)
    assert sorted(r["id"] for r in pipelines.values(first)) == list(range(8))
    assert sorted(r["id"] for r in pipelines.values(second)) == list(range(8))


def test_a_batch_goes_to_all_sinks(spark: SparkSession, pipelines: Pipelines) -> None:
    source, out = pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(source, rows(range(5)))
    sinks = [
        {"name": "rows", "from": "source", "table": {"path": "rows"}},
        {"name": "twice", "from": "doubled", "topic": {"name": out}},
    ]
    sources = [{"topics": [source], "format": JSON}]
    run(spark, pipelines, mode="batch", sources=sources, steps=STEPS, sinks=sinks)
    assert table(spark, pipelines.directory / "rows") == list(range(5))
    assert sorted(r["twice"] for r in pipelines.values(out)) == [0, 4, 8]


def test_a_mirror_is_one_of_several_sinks(spark: SparkSession, pipelines: Pipelines) -> None:
    """It creates the topics of its own source only."""
    copied, other = pipelines.topic(2), pipelines.topic(1)
    pipelines.produce(copied, [b"a", b"b"], key=b"k")
    pipelines.produce(other, rows([1]))
    run(
        spark, pipelines,
        sources=[{"name": "raw", "topics": [copied]},
                 {"name": "parsed", "topics": [other], "format": JSON}],
        sinks=[{"name": "copy", "from": "raw", "mirror": {"prefix": "copy."}},
               {"name": "ids", "from": "parsed", "table": {"path": "ids"}}],
    )  # fmt: skip
    assert [m.value() for m in pipelines.records(f"copy.{copied}")] == [b"a", b"b"]
    assert table(spark, pipelines.directory / "ids") == [1]
    assert f"copy.{other}" not in pipelines.topics()


def test_a_refused_sink_stops_all_before_a_record_is_written(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    source, all_of, even = pipelines.topic(1), pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(source, rows(range(4)))
    spec = spec_of(source, all_of, even)
    spec["sinks"][2]["table"]["partitionBy"] = ["day"]
    wrong = r"spec\.sinks\[2\]\.table\.partitionBy: there is no column day"
    with pytest.raises(SpecError, match=wrong):
        run(spark, pipelines, **spec)
    assert pipelines.records(all_of) == []
    spec = spec_of(source, "nobody", even)
    with pytest.raises(SpecError, match=r"spec\.sinks\[0\]\.topic\.name: topic nobody does not"):
        run(spark, pipelines, **spec)


def test_plan_checks_every_sink(spark: SparkSession, pipelines: Pipelines) -> None:
    from odradek_spark.jobs.build import check_topics
    from odradek_spark.jobs.look import analyse

    source, all_of, even = pipelines.topic(1), pipelines.topic(1), pipelines.topic(1)
    spec = spec_of(source, all_of, even)
    job = pipelines.job(**spec)
    seen = analyse(spark, job, check_topics(job))
    assert [view.name for view in seen.views] == ["source", "even", "doubled"]
    spec["sinks"][1]["outputMode"] = "complete"
    job = pipelines.job(**spec)
    with pytest.raises(SpecError, match=r"spec\.steps: .*[Cc]omplete"):
        analyse(spark, job, check_topics(job))
    assert not Path(job.checkpoint_location).exists()


def test_a_sink_keeps_its_view_and_its_table(spark: SparkSession, pipelines: Pipelines) -> None:
    """With another view the checkpoint does not fit; with another name Spark would skip batches."""
    source = pipelines.topic(1)
    pipelines.produce(source, rows(range(4)))
    spec: dict[str, Any] = {
        "sources": [{"topics": [source], "format": JSON}],
        "steps": STEPS,
        "sinks": [{"name": "one", "from": "even", "table": {"path": "one"}}],
    }
    run(spark, pipelines, **spec)
    spec["sinks"] = [{"name": "one", "from": "doubled", "table": {"path": "one"}}]
    with pytest.raises(SpecError, match=r"spec\.sinks\[0\]\.from: .*of view even: give .* new"):
        run(spark, pipelines, **spec)
    spec["sinks"] = [{"name": "two", "from": "even", "table": {"path": "one"}}]
    with pytest.raises(SpecError, match=r"spec\.sinks\[0\]\.table\.path: .*that of sink one"):
        run(spark, pipelines, **spec)


def test_the_failure_of_one_sink_names_it(spark: SparkSession, pipelines: Pipelines) -> None:
    """A fenced sink: another driver of the pipeline takes its writers over."""
    from odradek_api.pipeline.outputs import outputs
    from odradek_spark.jobs.guard import guard
    from odradek_spark.jobs.run import JobRun
    from odradek_spark.session.files import Store
    from odradek_spark.sinks.batches import ExactlyOnceSink

    source, all_of, even = pipelines.topic(1), pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(source, rows(range(4)))
    spec = spec_of(source, all_of, even, mode="streaming")
    job = pipelines.job(**spec)
    taken = False

    def take_over(status: Any) -> None:
        nonlocal taken
        if not taken and status.queries.get("even") and status.queries["even"].rows_out > 0:
            taken = True
            store = Store(spark)
            output = outputs(job.spec)[1]
            ExactlyOnceSink(job, store, output, guard(store, job)).start(2)
            pipelines.produce(source, rows(range(4, 24)))

    started = JobRun(job, take_over)
    assert started.run_in(spark) == 1
    assert started.status.field == "spec.sinks[1].topic", started.status
    assert "another driver of this pipeline" in started.status.message
    assert sorted(r["id"] for r in pipelines.values(even)) == [0, 2]
