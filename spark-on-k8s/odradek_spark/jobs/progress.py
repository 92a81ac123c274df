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
    )


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


_OURS = re.compile(r"ODRADEK (.*?)(?: SQLSTATE: \S+)?$", re.MULTILINE)
_KNOWN = (
    ("failOnDataLoss", "spec.sources.failOnDataLoss"),
    ("UNKNOWN_TOPIC_OR_PARTITION", "spec.sources.topics"),
    ("UnknownTopicOrPartition", "spec.sources.topics"),
    ("AuthorizationException", "spec.kafka.config"),
    ("AuthenticationException", "spec.kafka.config"),
    ("STATE_STORE", "spec.checkpoint"),
    ("StateSchemaNotCompatible", "spec.steps"),
    ("MirrorError", "spec.sink.mirror"),
    ("PythonException", "spec.steps"),
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
    field = next((field for word, field in _KNOWN if word in text), "")
    return field, message
