"""Transforms on DataFrames: no broker, no query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek_api.pipeline.common import Dedup
from odradek_api.pipeline.job import SpecError
from odradek_api.pipeline.sinks import TopicSink
from odradek_api.pipeline.sources import Format
from odradek_api.pipeline.spec import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(b"k", value, "t", 0, n) for n, value in enumerate(values)]
    schema = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"
    return spark.createDataFrame(rows, schema)


def reasons(frame: DataFrame) -> list[Any]:
    return [row["__reason"] for row in frame.orderBy("_offset").collect()]


def test_json(spark: SparkSession) -> None:
    from odradek_spark.transforms.parse import bad, good, parse

    form = Format(type="json", schema="a STRING NOT NULL, n INT")
    parsed = parse("f", records(spark, b'{"a": "x", "n": 1}', b'{"a": "x"}', b"{", b'{"n": 1}',
                                b'{"a": "x", "n": "one"}', None, b"\xff\xfe"), form)  # fmt: skip
    wrong = "the value is not JSON of the schema"
    assert reasons(parsed) == [None, None, wrong, "a is missing", wrong, "the value is null", wrong]
    assert [(r.a, r.n, r._offset) for r in good(parsed).orderBy("_offset").collect()] == [
        ("x", 1, 0), ("x", None, 1)]  # fmt: skip
    assert [bytes(r["__value"]) for r in bad(parsed).where("_offset = 6").collect()] == [
        b"\xff\xfe"
    ]
    assert not any(name.startswith("__") for name in good(parsed).columns)


def test_csv_and_its_header(spark: SparkSession) -> None:
    from odradek_spark.transforms.parse import parse

    form = Format(
        type="csv", schema="a STRING NOT NULL, n INT", options={"sep": ";", "header": True}
    )
    parsed = parse("f", records(spark, b"a;n", b"x;1", b"x;one", b"x", b";3"), form)
    wrong = "the value is not CSV of the schema"
    assert reasons(parsed) == [None, wrong, wrong, "a is missing"]


def test_avro(spark: SparkSession) -> None:
    from odradek_spark.transforms.parse import parse

    schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}'
    parsed = parse("f", records(spark, b"\x02x", b"\xff"), Format(type="avro", schema=schema))
    assert reasons(parsed) == [None, "the value is not Avro of the schema"]
    assert [r.a for r in parsed.where("__reason IS NULL").collect()] == ["x"]


def test_wrong_schemas_name_their_field(spark: SparkSession) -> None:
    from odradek_spark.transforms.parse import parse

    with pytest.raises(SpecError, match=r"f\.schema: \[PARSE_SYNTAX_ERROR\]"):
        parse("f", records(spark), Format(type="json", schema="a STRING,, b"))
    with pytest.raises(SpecError, match=r"f\.schema: "):
        parse("f", records(spark), Format(type="avro", schema='{"type": "record"}'))


def test_steps_see_the_views_before_them(spark: SparkSession, tmp_path: Path) -> None:
    from odradek_spark.transforms.steps import run_steps

    (tmp_path / "own.py").write_text(
        "from pyspark.sql.functions import udf\n"
        "@udf('int')\ndef twice(n): return 2 * n\n"
        "def transform(a, b): return a.join(b, 'n').withColumn('m', twice('n'))\n"
    )
    frame = spark.createDataFrame([(1,), (2,), (2,)], "n INT")
    steps = [
        Step(name="big", sql="SELECT * FROM numbers WHERE n > 1"),
        Step(dedup=Dedup(by=["n"])),
        Step(python="own.py", inputs=["numbers", "step_2"]),
    ]
    result = run_steps(spark, steps, {"numbers": frame}, tmp_path)
    assert [tuple(row) for row in result.collect()] == [(2, 4), (2, 4)]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step(sql="SELEKT 1"), r"spec\.steps\[0\]\.sql: \[PARSE_SYNTAX_ERROR\]"),
        (Step(sql="SELECT x FROM numbers"), r"steps\[0\]\.sql: \[UNRESOLVED_COLUMN"),
        (Step(sql="SELECT * FROM nobody"), r"steps\[0\]\.sql: \[TABLE_OR_VIEW_NOT_FOUND\]"),
        (Step(python="no.py"), r"steps\[0\]\.python: file .* does not exist"),
        (Step(code="x = 1"), r"steps\[0\]\.function: it defines no function transform"),
        (Step(code="def transform(df): return 1"), r"function: transform returned a int"),
        (Step(code="def transform(df): return df.x()"), r"code: transform raised"),
        (Step(dedup=Dedup(by=["x"])), r"steps\[0\]\.dedup\.by: there is no column x, only n"),
    ],
)
def test_wrong_steps_name_their_field(
    spark: SparkSession, tmp_path: Path, step: Step, words: str
) -> None:
    from odradek_spark.transforms.steps import run_steps

    frame = spark.createDataFrame([(1,)], "n INT")
    with pytest.raises(SpecError, match=words):
        run_steps(spark, [step], {"numbers": frame}, tmp_path)


def test_records_of_columns(spark: SparkSession) -> None:
    from odradek_spark.transforms.records import to_records

    frame = spark.createDataFrame([("x", 1, 7)], "a STRING, n INT, _offset INT")
    made = to_records(
        "spec.sink", frame, TopicSink(name="t", key="a", id="concat(a, _offset)")
    ).collect()[0]
    assert (bytes(made.key), bytes(made.value)) == (b"x", b'{"a":"x","n":1}')
    assert [(h.key, bytes(h.value)) for h in made.headers] == [("odradek.id", b"x7")]
    with pytest.raises(SpecError, match=r"spec\.sink\.topic\.key: \[UNRESOLVED_COLUMN"):
        to_records("spec.sink", frame, TopicSink(name="t", key="nobody"))
    with pytest.raises(SpecError, match=r"spec\.sink\.topic\.value: raw needs a column"):
        to_records("spec.sink", frame, TopicSink(name="t", value="raw"))
