"""Tests in a manifest: the steps run on their rows, without Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek_api.parse import load
from odradek_api.pipeline.job import Job, SpecError
from odradek_testkit.pipelines import Pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
COUNTED = "SELECT page, count(*) AS n, max(_offset) AS last FROM source GROUP BY page"
VISITS: dict[str, Any] = {"topics": ["visits"], "format": {"type": "json", "schema": "page STRING"}}


@pytest.fixture
def nowhere(tmp_path: Path) -> Pipelines:
    """Jobs of a cluster that does not answer."""
    return Pipelines("localhost:1", tmp_path)


def outcome(spark: SparkSession, job: Job) -> tuple[list[str], list[str]]:
    from odradek_spark.jobs.samples import run_tests

    (found,) = run_tests(spark, job)
    return found.missing, found.unexpected


def counted(nowhere: Pipelines, **test: Any) -> Job:
    return nowhere.job(
        sources=[VISITS], steps=[{"sql": COUNTED}], sink={"console": {}},
        tests=[{"name": "pages are counted", **test}],
    )  # fmt: skip


def test_rows_are_compared_in_any_order(spark: SparkSession, nowhere: Pipelines) -> None:
    """Records are numbered; columns that no row names are not compared."""
    rows = {"source": [{"page": "a"}, {"page": "b"}, {"page": "a"}]}
    right = [{"page": "b", "n": 1}, {"page": "a", "n": 2}]
    assert outcome(spark, counted(nowhere, rows=rows, expect=right)) == ([], [])
    whole = [{"page": "a", "n": 2, "last": 2}, {"page": "b", "n": 1, "last": 1}]
    assert outcome(spark, counted(nowhere, rows=rows, expect=whole)) == ([], [])
    wrong = [{"page": "a", "n": 3}]
    assert outcome(spark, counted(nowhere, rows=rows, expect=wrong)) == (
        ['{"page":"a","n":3}'],
        ['{"page":"a","n":2}', '{"page":"b","n":1}'],
    )
    assert outcome(spark, counted(nowhere)) == ([], [])


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"rows": {"source": [{"pag": "a"}]}}, r"tests\[0\]\.rows\.source\[0\]: .*no column pag"),
        ({"expect": [{"m": 1}]}, r"spec\.tests\[0\]\.expect: the last step has no column m, only"),
    ],
)  # fmt: skip
def test_a_wrong_test_is_named(
    spark: SparkSession, nowhere: Pipelines, test: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        outcome(spark, counted(nowhere, **test))


def test_raw_records_are_bytes(spark: SparkSession, nowhere: Pipelines) -> None:
    job = nowhere.job(
        sources=[{"topics": ["a"]}], sink={"console": {}},
        steps=[{"sql": "SELECT upper(CAST(value AS STRING)) AS v, typeof(key) AS t FROM source"}],
        tests=[{"name": "x", "rows": {"source": [{"key": "k", "value": "a"}]},
                "expect": [{"v": "A", "t": "binary"}]}],
    )  # fmt: skip
    assert outcome(spark, job) == ([], [])


def test_the_example(spark: SparkSession) -> None:
    (pipeline,) = [r for r in load([EXAMPLES / "web-activity"]) if r.kind == "SparkPipeline"]
    assert outcome(spark, Job(name="x", spec=pipeline.spec)) == ([], [])
