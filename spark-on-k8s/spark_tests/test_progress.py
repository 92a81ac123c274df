"""Spark's reports to the few numbers that are shown."""

from odradek_api.pipeline.outputs import Output
from odradek_api.pipeline.sinks import Sink, TopicSink
from odradek_api.pipeline.status import QueryProgress, of_sinks
from odradek_spark.jobs.progress import explain_failure, lag, progress

REPORT = {
    "batchId": 3,
    "timestamp": "2026-11-16T12:00:00.000Z",
    "numInputRows": 10,
    "inputRowsPerSecond": 5.04,
    "processedRowsPerSecond": "NaN",
    "durationMs": {"triggerExecution": 250},
    "stateOperators": [{"numRowsTotal": 7, "numRowsDroppedByWatermark": 2, "memoryUsedBytes": 900}],
    "sources": [
        {
            "description": "KafkaV2[Subscribe[a, b]]",
            "numInputRows": 10,
            "endOffset": {"a": {"0": 5}},
            "latestOffset": {"a": {"0": 9, "1": 1}},
        }
    ],
}


def test_a_report() -> None:
    first = progress(REPORT, None)
    assert first == QueryProgress(
        batch=3, input_rate=5.0, process_rate=0.0, batch_ms=250, rows=10, lag={"a": 5},
        checkpoint="2026-11-16T12:00:00.000Z", state_rows=7, late_rows=2,
        state_bytes=900, rows_by_source={"a, b": 10},
    )  # fmt: skip
    assert progress(REPORT, first).rows == 10
    again = progress({**REPORT, "batchId": 4, "timestamp": "2026-11-16T12:00:01.000Z"}, first)
    assert (again.rows, again.late_rows) == (20, 4)
    assert again.rows_by_source == {"a, b": 20}


def test_rows_out_and_watermark_show_why_nothing_comes_out() -> None:
    report = {**REPORT, "sink": {"numOutputRows": 4},
              "eventTime": {"watermark": "2026-11-16T11:59:00.000Z"}}  # fmt: skip
    first = progress(report, None)
    assert (first.rows_out, first.watermark) == (4, "2026-11-16T11:59:00.000Z")
    again = progress({**report, "batchId": 4}, first)
    assert again.rows_out == 8
    silent = {**report, "sink": {"numOutputRows": -1},
              "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}  # fmt: skip
    assert progress(silent, None).rows_out == -1
    assert progress(silent, None).watermark == ""


def test_lag_of_sources_that_are_no_topics() -> None:
    assert lag([{"endOffset": {"logOffset": 3}, "latestOffset": None}, {"endOffset": 5}]) == {}
    assert lag([{"endOffset": '{"a": {"0": 1}}', "latestOffset": '{"a": {"0": 3}}'}]) == {"a": 2}


def test_failures_name_a_field() -> None:
    ours = "Job aborted\nCaused by: [USER_RAISED_EXCEPTION] ODRADEK t-0 offset 7 cannot be "
    ours += "parsed: no"
    assert explain_failure(ours) == (
        "spec.sources.format",
        "t-0 offset 7 cannot be parsed: no; set spec.deadLetter to keep such records in a topic",
    )
    plan = "[OTHER] no\n+- raise_error(USER_RAISED_EXCEPTION, concat(ODRADEK , _topic#1"
    assert explain_failure(plan) == ("", "[OTHER] no"), "the words are in every plan"
    field, said = explain_failure("x\nCaused by: org.a.B: UnknownTopicOrPartition\n\tat c")
    assert (field, said) == ("spec.sources.topics", "org.a.B: UnknownTopicOrPartition")
    denied = (
        "x\nCaused by: org.a.ClusterAuthorizationException: Cluster authorization failed.\n\tat"
    )
    to_topic = Output("sinks[1]", "totals", Sink(topic=TopicSink(name="totals")))
    field, said = explain_failure(denied, to_topic)
    assert field == "spec.user"
    assert "name: totals}, operations: [write]" in said
    assert explain_failure(denied)[0] == "spec.kafka.config", "it is no topic that was written"
    ours = "An exception was raised by the Python Proxy. Return Message: Traceback (most recent"
    ours += " call last):\n  File x, line 1, in y\npyspark.errors.AnalysisException: [NO] table"
    assert explain_failure(ours) == ("", "[NO] table")
    taken = "x\norg.a.B: odradek_spark.TakenOverError: another driver of this pipeline\n\tat"
    assert explain_failure(taken, to_topic)[0] == "spec.sinks[1].topic"


def test_several_sinks_are_one_pipeline() -> None:
    """The slowest sink decides how far the pipeline is."""
    fast = QueryProgress(batch=9, lag={"a": 1, "b": 0}, rows=50, rows_out=40, batch_ms=10,
                         watermark="2026-11-16T12:00:09.000Z", checkpoint="9")  # fmt: skip
    slow = QueryProgress(batch=4, lag={"a": 7}, rows=30, rows_out=2, batch_ms=90, late_rows=1,
                         watermark="2026-11-16T12:00:04.000Z", checkpoint="4")  # fmt: skip
    dead = QueryProgress(batch=1, lag={"a": 99}, rows_out=3)
    whole = of_sinks({"fast": fast, "slow": slow, "dead-letter": dead})
    assert whole is not None
    assert (whole.lag, whole.rows, whole.rows_out) == ({"a": 7, "b": 0}, 50, 42)
    assert (whole.batch, whole.batch_ms, whole.late_rows) == (4, 90, 1)
    assert (whole.watermark, whole.checkpoint) == ("2026-11-16T12:00:04.000Z", "4")
    assert of_sinks({"fast": fast}) == fast
    assert of_sinks({"fast": fast, "slow": QueryProgress()}).rows_out == 40  # type: ignore[union-attr]
    assert of_sinks({"dead-letter": dead}) is None
