"""Spark's reports to the few numbers that are shown."""

from odradek_api.pipeline.status import QueryProgress
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
    field, said = explain_failure(denied, "totals")
    assert field == "spec.user"
    assert "name: totals}, operations: [write]" in said
    assert explain_failure(denied)[0] == "spec.kafka.config", "it is no topic that was written"
    ours = "An exception was raised by the Python Proxy. Return Message: Traceback (most recent"
    ours += " call last):\n  File x, line 1, in y\npyspark.errors.AnalysisException: [NO] table"
    assert explain_failure(ours) == ("", "[NO] table")
