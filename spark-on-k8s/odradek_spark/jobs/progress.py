"""Spark's progress report of a query as the few numbers of QueryProgress. Does no I/O."""

from __future__ import annotations

import json
import re
from typing import Any

from odradek_api.pipeline.outputs import MAIN, Output
from odradek_api.pipeline.sinks import Sink
from odradek_api.pipeline.status import QueryProgress
from odradek_spark.credentials import granting


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
        state_bytes=sum(int(o.get("memoryUsedBytes") or 0) for o in operators),
        rows_by_source=_by_source(report, before.rows_by_source) if new else before.rows_by_source,
        late_rows=before.late_rows + late if new else before.late_rows,
        rows_out=_rows_out(report, before.rows_out) if new else before.rows_out,
        watermark=_watermark(report),
    )


def _by_source(report: dict[str, Any], before: dict[str, int]) -> dict[str, int]:
    """ "KafkaV2[Subscribe[visits]]" → visits; a source that is read twice counts twice."""
    found = dict(before)
    for source in report.get("sources") or ():
        text = str(source.get("description") or "")
        name = _DESCRIPTION.sub(r"\1", text)
        found[name] = found.get(name, 0) + int(source.get("numInputRows") or 0)
    return found


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


# KafkaV2[Subscribe[a, b]], KafkaV2[SubscribePattern[a.*]], FileStreamSource[file:/a]
_DESCRIPTION = re.compile(r"^\w+\[(?:\w+\[)?(.*?)\]{1,2}$")

# Only a raised error counts: the plan of a query, which other errors quote, contains the same
# words.
_OURS = re.compile(r"\[USER_RAISED_EXCEPTION\] ODRADEK (.*?)(?: SQLSTATE: \S+)?$", re.MULTILINE)
# Errors of Python workers (odradek_spark/registries.py), with the field that each is about.
_REGISTRY = re.compile(r"\b(SourceRegistryError|SinkRegistryError): (.*)$", re.MULTILINE)
_KNOWN = (
    ("failOnDataLoss", "spec.sources.failOnDataLoss"),
    ("UNKNOWN_TOPIC_OR_PARTITION", "spec.sources.topics"),
    ("UnknownTopicOrPartition", "spec.sources.topics"),
    ("AuthorizationException", "spec.kafka.config"),
    ("AuthenticationException", "spec.kafka.config"),
    ("java.sql.SQL", "spec.lookups.jdbc"),
    ("STATE_STORE", "spec.checkpoint"),
    ("PythonException", "spec.steps"),
)


# a message of Kafka's client
_DENIED = re.compile(r"Not authorized to access topics: \[([^\]]+)\]")

# an error of Python code that Spark's JVM calls in the driver, with its traceback
PROXY = "raised by the Python Proxy"
_RAISED = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception): (.+)$", re.MULTILINE)

# raised by a task of the exactly-once sink
_SINK = re.compile(r"(?:TakenOverError|MarkLostError): (.+)")

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


NO_SINK = Output("sink", MAIN, Sink())  # it is not known which sink a failure is of


def explain_failure(text: str, output: Output = NO_SINK) -> tuple[str, str]:
    """The field that the error is about, if it is known, and a message.

    `output`: the sink whose query failed.
    """
    at = f"spec.{output.at}"
    if (ours := _OURS.search(text)) and ours[1].startswith("lookup "):
        return "spec.lookups", f"{ours[1]}; write a record with this key that parses, or delete it"
    if ours:
        return (
            "spec.sources.format",
            f"{ours[1]}; set spec.deadLetter to keep such records in a topic",
        )
    if sink := _SINK.search(text):
        return f"{at}.topic", sink[1]
    if registry := _REGISTRY.search(text):
        of_source = registry[1] == "SourceRegistryError"
        return "spec.sources.format.registry" if of_source else f"{at}.topic", registry[2]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    message = (causes[-1] if causes else (lines or ["unknown"])[0]).removeprefix("Caused by: ")
    if PROXY in message and (raised := _RAISED.findall(text)):
        message = raised[-1]
    if any(word in text for word in _CHANGED):
        return "spec.steps", f"{message} {_START_OVER}"
    if denied := _DENIED.search(text):
        operation = "write" if "producer" in text.lower() else "read"
        return "spec.user", f"{message}; {granting(denied[1].split(',')[0].strip(), operation)}"
    if output.sink.topic is not None and "ClusterAuthorizationException" in text:
        # an idempotent producer, which needs the right to write any topic to begin
        return "spec.user", f"{message}; {granting(output.sink.topic.name, 'write')}"
    if "MirrorError" in text:
        return f"{at}.mirror", message
    field = next((field for word, field in _KNOWN if word in text), "")
    return field, message
