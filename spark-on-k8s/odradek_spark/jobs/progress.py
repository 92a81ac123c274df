"""Spark's progress report of a query as the few numbers of QueryProgress. Does no I/O."""

from __future__ import annotations

import json
import re
from typing import Any

from odradek_api.pipeline.status import QueryProgress


def progress(report: dict[str, Any], before: QueryProgress | None) -> QueryProgress:
    """Adds one of Spark's reports; a report of the same batch is not counted twice."""
    before = before or QueryProgress()
    batch = int(report["batchId"])
    rows = int(report.get("numInputRows") or 0)
    operators = report.get("stateOperators") or ()
    late = sum(int(o.get("numRowsDroppedByWatermark") or 0) for o in operators)
    new = batch != before.batch or report["timestamp"] != before.checkpoint
    return QueryProgress(
        batch=batch,
        input_rate=_number(report.get("inputRowsPerSecond")),
        process_rate=_number(report.get("processedRowsPerSecond")),
        batch_ms=int((report.get("durationMs") or {}).get("triggerExecution") or 0),
        rows=before.rows + rows if new else before.rows,
        lag=lag(report.get("sources") or ()),
        checkpoint=str(report["timestamp"]),
        state_rows=sum(int(o.get("numRowsTotal") or 0) for o in operators),
        late_rows=before.late_rows + late if new else before.late_rows,
        rows_out=_rows_out(report, before.rows_out) if new else before.rows_out,
        watermark=_watermark(report),
    )


def _rows_out(report: dict[str, Any], before: int) -> int:
    written = int((report.get("sink") or {}).get("numOutputRows", -1))
    return before if written < 0 else max(before, 0) + written


def _watermark(report: dict[str, Any]) -> str:
    """Empty before the first event: Spark then reports the year 1970."""
    found = str((report.get("eventTime") or {}).get("watermark") or "")
    return "" if found.startswith("1970-01-01T00:00:00") else found


def lag(sources: Any) -> dict[str, int]:
    """latestOffset - endOffset, by topic; Spark's format is {"visits": {"0": 9, "1": 4}}."""
    found: dict[str, int] = {}
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for topic, partitions in latest.items():
            behind = sum(n - end.get(topic, {}).get(p, 0) for p, n in partitions.items())
            found[topic] = found.get(topic, 0) + max(0, behind)
    return found


def _offsets(given: Any) -> dict[str, dict[str, int]]:
    if isinstance(given, str):
        given = json.loads(given)
    if not isinstance(given, dict):
        return {}
    return {topic: own for topic, own in given.items() if isinstance(own, dict)}


def _number(given: Any) -> float:
    """Spark reports NaN and Infinity for batches that took no time."""
    try:
        value = float(given or 0)
    except ValueError:
        return 0.0
    return round(value, 1) if value == value and abs(value) != float("inf") else 0.0


# Only as it is raised: the plan of a query, which is part of other errors, has its words, too.
_OURS = re.compile(r"\[USER_RAISED_EXCEPTION\] ODRADEK (.*?)(?: SQLSTATE: \S+)?$", re.MULTILINE)
_KNOWN = (
    ("failOnDataLoss", "spec.sources.failOnDataLoss"),
    ("UNKNOWN_TOPIC_OR_PARTITION", "spec.sources.topics"),
    ("UnknownTopicOrPartition", "spec.sources.topics"),
    ("AuthorizationException", "spec.kafka.config"),
    ("AuthenticationException", "spec.kafka.config"),
    ("STATE_STORE", "spec.checkpoint"),
    ("MirrorError", "spec.sink.mirror"),
    ("PythonException", "spec.steps"),
)


# The checkpoint has state of another query: its keys, its values, or its aggregations and joins.
_CHANGED = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "StateSchemaNotCompatible",
)
_START_OVER = (
    "GROUP BY, aggregations, joins and dedup cannot change on an old checkpoint: take the change "
    "back, or set a new spec.checkpoint (and a new path of a table) to start over from the "
    "sources' `from`"
)


def explain_failure(text: str) -> tuple[str, str]:
    """The field that the error is about, if it is known, and a message."""
    if ours := _OURS.search(text):
        return (
            "spec.sources.format",
            f"{ours[1]}; set spec.deadLetter to keep such records in a topic",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    message = (causes[-1] if causes else (lines or ["unknown"])[0]).removeprefix("Caused by: ")
    if any(word in text for word in _CHANGED):
        return "spec.steps", f"{message} {_START_OVER}"
    field = next((field for word, field in _KNOWN if word in text), "")
    return field, message
