"""Jobs against a real broker, in one Spark session: guarantees, dead letters, replay, refusals."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek_api.pipeline.job import SpecError
from odradek_api.pipeline.status import JobStatus
from odradek_testkit.pipelines import Pipelines, headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

JSON = {"type": "json", "schema": "id INT NOT NULL, at TIMESTAMP"}
AT = "2026-11-16T12:00:00Z"


def run(spark: SparkSession, pipelines: Pipelines, name: str = "test", **spec: Any) -> JobStatus:
    from odradek_spark.jobs.run import JobRun

    job = JobRun(pipelines.job(name, **spec))
    code = job.run_in(spark)
    assert (code == 0) == (job.status.state == "Completed"), job.status
    return job.status


def rows(numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [{"id": n, "at": AT} for n in numbers]


def table(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(path)).collect())


def test_a_topic_becomes_a_table_and_bad_records_become_dead_letters(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    """The table goes on from its checkpoint, and belongs to it."""
    topic, dead = pipelines.topic(), pipelines.topic(1)
    pipelines.produce(topic, rows(range(50)))
    pipelines.produce(topic, [b"{", {"id": None}], key=b"k", headers=[("own", b"1")])
    spec: Any = {
        "sources": [{"topics": [topic], "format": JSON, "maxOffsetsPerTrigger": 20}],
        "deadLetter": {"topic": dead},
        "sink": {"table": {"path": "table"}},
    }
    said = run(spark, pipelines, **spec)
    assert said.queries["main"].batch >= 2, "batches were not limited"
    assert said.queries["main"].lag == {topic: 0}
    assert said.queries["main"].rows == 52
    written = json.loads((pipelines.directory / "status.json").read_text())
    assert written["state"] == "Completed"
    letters = {m.value(): headers(m) for m in pipelines.records(dead)}
    assert letters.keys() == {b"{", b'{"id": null}'}
    assert letters[b"{"]["odradek.error"] == b"the value is not JSON of the schema"
    assert letters[b'{"id": null}']["odradek.error"] == b"id is missing"
    assert letters[b"{"]["odradek.topic"] == topic.encode()
    assert letters[b"{"]["own"] == b"1"

    pipelines.produce(topic, rows(range(50, 60)))
    run(spark, pipelines, **spec)
    assert table(spark, pipelines.directory / "table") == list(range(60))
    assert len(pipelines.records(dead)) == 2

    with pytest.raises(SpecError, match=r"spec\.sink\.table\.path: .* another checkpoint"):
        run(spark, pipelines, **spec, checkpoint="new")
    with pytest.raises(SpecError, match=r"spec\.checkpoint: .* of default/test"):
        run(spark, pipelines, "another", **spec)


def test_without_dead_letters_a_bad_record_stops_the_pipeline(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    topic = pipelines.topic(1)
    pipelines.produce(topic, [*rows([1]), b"{"])
    said = run(
        spark, pipelines,
        sources=[{"topics": [topic], "format": JSON}], sink={"table": {"path": "table"}},
    )  # fmt: skip
    assert said.state == "Failed"
    assert said.field == "spec.sources.format"
    assert f"{topic}-0 offset 1 cannot be parsed: the value is not JSON" in said.message


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ({"from": "offsets", "offsets": {"TOPIC": {"0": 7}}}, [7, 8, 9]),
        ({"from": "timestamp", "timestamp": "FIFTH"}, [5, 6, 7, 8, 9]),
        ({"from": "offsets", "offsets": {"TOPIC": {"0": 2}}, "until": {"TOPIC": {"0": 4}}}, [2, 3]),
    ],
    ids=["offsets", "timestamp", "batch"],
)
def test_replay(
    spark: SparkSession, pipelines: Pipelines, begin: dict[str, Any], expected: list[int]
) -> None:
    topic = pipelines.topic(1)
    first_s = int(time.time()) - 100
    for n in range(10):
        pipelines.produce(topic, rows([n]), timestamp=1000 * (first_s + n))
    fifth = datetime.fromtimestamp(first_s + 5, UTC).isoformat()
    begin = json.loads(json.dumps(begin).replace("TOPIC", topic).replace("FIFTH", fifth))
    mode = "batch" if "until" in begin else "availableNow"
    run(
        spark, pipelines, mode=mode,
        sources=[{"topics": [topic], "format": JSON, **begin}], sink={"table": {"path": "table"}},
    )  # fmt: skip
    assert table(spark, pipelines.directory / "table") == expected


def test_duplicates_are_dropped_by_the_id_in_the_header(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    """A topic sink may write a batch twice; a reader that drops by odradek.id sees each once."""
    first, second = pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(first, rows(range(20)))
    spec: Any = {
        "sources": [{"topics": [first], "format": JSON}],
        "sink": {"topic": {"name": second, "key": "id", "id": "id"}},
    }
    run(spark, pipelines, **spec, checkpoint="one")
    run(spark, pipelines, **spec, checkpoint="two")  # as if the batch were done again
    assert len(pipelines.records(second)) == 40
    assert headers(pipelines.records(second)[0])["odradek.id"] == b"0"
    run(
        spark, pipelines, checkpoint="three",
        sources=[{"topics": [second]}],
        steps=[
            {"sql": "SELECT timestamp, CAST(filter(headers, h -> h.key = 'odradek.id')[0].value "
                    "AS STRING) AS key, CAST(CAST(key AS STRING) AS INT) AS id FROM source",
             "watermark": {"column": "timestamp", "delay": "1 hour"}, "dedup": {"by": ["key"]}},
        ],
        sink={"table": {"path": "table"}},
    )  # fmt: skip
    assert table(spark, pipelines.directory / "table") == list(range(20))


def test_a_changed_query_on_an_old_checkpoint_says_what_to_do(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    topic = pipelines.topic(1)

    def counted(sql: str) -> JobStatus:
        pipelines.produce(topic, rows([1]))
        return run(
            spark, pipelines,
            sources=[{"topics": [topic], "format": JSON}], steps=[{"sql": sql}],
            sink={"console": {}, "outputMode": "complete"},
        )  # fmt: skip

    assert counted("SELECT id, count(*) AS n FROM source GROUP BY id").state == "Completed"
    for changed in (
        "SELECT at, count(*) AS n FROM source GROUP BY at",
        "SELECT id, max(at) AS n FROM source GROUP BY id",
    ):
        said = counted(changed)
        assert (said.state, said.field) == ("Failed", "spec.steps")
        assert "set a new spec.checkpoint" in said.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sources": [{"topics": ["nobody"]}]}, r"spec\.sources\[0\]\.topics\[0\]: topic nobody"),
        ({"sink": {"topic": {"name": "nobody"}}}, r"spec\.sink\.topic\.name: topic nobody"),
        ({"sink": {"topic": {"name": "TOPIX"}}}, r"did you mean TOPIC\?"),
        ({"kafka": {"bootstrapServers": "127.0.0.1:1"}}, r"spec\.kafka\.bootstrapServers: no brok"),
        ({"sources": [{"topics": ["TOPIC"], "from": "offsets", "offsets": {"TOPIC": {"9": 0}}}]},
         r"spec\.sources\[0\]\.offsets\.TOPIC\.9: topic TOPIC has only 2 partitions"),
        ({"sources": [{"topics": ["TOPIC"], "format": JSON,
                       "watermark": {"column": "when", "delay": "1 hour"}}]},
         r"spec\.sources\[0\]\.watermark\.column: there is no column when"),
        ({"steps": [{"sql": "SELECT count(*) AS n FROM source"}]},
         r"spec\.steps: .*not supported.*; set a watermark .*outputMode to update or complete"),
        ({"sources": [{"files": {"path": "nowhere"}, "format": {"type": "text"}}]},
         r"spec\.sources\[0\]\.files\.path: directory .* does not exist"),
        ({"sink": {"table": {"path": "t", "partitionBy": ["day"]}}},
         r"spec\.sink\.table\.partitionBy: there is no column day"),
        ({"sink": {"topic": {"name": "TOPIC"}}, "kafka": {"bootstrapServers": "BOOTSTRAP",
          "config": {"sasl.password": "${env:ODRADEK_NO_SUCH}"}}},
         r"kafka\.config\[sasl\.password\]: environment variable ODRADEK_NO_SUCH is not set"),
    ],
)  # fmt: skip
def test_refusals_name_the_field(
    spark: SparkSession,
    pipelines: Pipelines,
    change: dict[str, Any],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek_spark.sources.metadata.TIMEOUT_S", 2.0)
    topic = pipelines.topic()
    spec: Any = {"sources": [{"topics": ["TOPIC"], "format": JSON}],
                 "sink": {"topic": {"name": "TOPIC"}}, **change}  # fmt: skip
    text = json.dumps(spec).replace("TOPIC", topic).replace("TOPIX", f"{topic}x")
    text = text.replace("BOOTSTRAP", pipelines.bootstrap)
    with pytest.raises(SpecError, match=words.replace("TOPIC", topic)):
        run(spark, pipelines, **json.loads(text))


def test_spark_analyses_a_job_that_it_does_not_run(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    """Names, types, output mode and the checkpoint's owner; nothing is read or written."""
    from odradek_spark.jobs.build import check_topics
    from odradek_spark.jobs.look import analyse, preview

    topic, sink = pipelines.topic(2), pipelines.topic(1)
    pipelines.produce(topic, [*rows(range(40)), b"{"])
    counted = "SELECT id % 2 AS odd, count(*) AS n FROM source GROUP BY id % 2"
    spec: Any = {
        "sources": [{"topics": [topic], "format": JSON}],
        "steps": [{"name": "ids", "sql": "SELECT id FROM source WHERE id < 1000"}],
        "sink": {"topic": {"name": sink}},
    }
    job = pipelines.job(**spec)
    seen = analyse(spark, job, check_topics(job))
    assert [(view.name, view.columns) for view in seen.views] == [
        ("source", {"id": "int", "at": "timestamp"}), ("ids", {"id": "int"})]  # fmt: skip
    assert not (pipelines.directory / "checkpoint").exists()
    for change, words in (
        (
            {"steps": [{"sql": "SELECT nobody FROM source"}]},
            r"steps\[0\]\.sql: \[UNRESOLVED_COLUMN",
        ),
        ({"steps": [{"sql": counted}]}, r"spec\.steps: .*without watermark.*; set a watermark"),
        ({"sink": {"topic": {"name": sink, "key": "nobody"}}}, r"spec\.sink\.topic\.key: \[UNRES"),
    ):
        job = pipelines.job(**{**spec, **change})
        with pytest.raises(SpecError, match=words):
            analyse(spark, job, check_topics(job))
    job = pipelines.job(**{**spec, "deadLetter": {"topic": sink}})
    found = preview(spark, job, check_topics(job), 3)
    assert [len(view.rows) for view in found.views] == [3, 3]
    assert pipelines.records(sink) == []
