"""The SparkPipelines on the operator's /metrics, from their status: `odradek_pipeline_…{pipeline}`.

    metrics.show({"shop/page-views": status})     # after each pass; what is not named is gone

Drivers of runs that have ended are not there to be scraped, and their pods come and go; the status
has the last numbers in one place. Counters begin again with each driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from odradek_api.pipeline.status import SparkPipelineStatus

PREFIX = "odradek_pipeline_"
BY_PIPELINE, BY_TOPIC = ("pipeline",), ("pipeline", "topic")


class PipelineMetrics(Collector):
    def __init__(self) -> None:
        self._statuses: Mapping[str, SparkPipelineStatus] = {}

    def show(self, statuses: Mapping[str, SparkPipelineStatus]) -> None:
        """By "namespace/name". The mapping must not be changed afterwards."""
        self._statuses = statuses

    def collect(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            f"{PREFIX}lag_records", "Records of a source topic not read yet", labels=BY_TOPIC
        )
        families = {name: _family(name, text) for name, text in HELP.items()}
        for key, status in self._statuses.items():
            for one in status.lag:
                lag.add_metric((key, one.topic), one.records)
            for name, value in _values(status).items():
                families[name].add_metric((key,), value)
        yield lag
        yield from families.values()


HELP = {
    "ready": "1 if the condition Ready is True",
    "input_records_per_second": "Records that arrive",
    "process_records_per_second": "Records that are processed while a batch runs",
    "batch_seconds": "Duration of the last batch",
    "last_batch_timestamp_seconds": "When the last batch was committed",
    "watermark_timestamp_seconds": "Event time up to which windows are closed",
    "state_rows": "Keys and windows in the state store",
    "state_bytes": "Memory of the state store",
    "restarts": "Restarts of the driver",
    "rows_read_total": "Rows read since the driver started",
    "rows_written_total": "Rows written since the driver started, if the sink says it",
    "dead_letters_total": "Records that went to the dead-letter topic since the driver started",
    "late_rows_total": "Rows dropped since the driver started because they were late",
}
Family = GaugeMetricFamily | CounterMetricFamily


def _family(name: str, text: str) -> Family:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(f"{PREFIX}{name}", text, labels=BY_PIPELINE)


def _values(status: SparkPipelineStatus) -> dict[str, float]:
    ready = any(one.type == "Ready" and one.status == "True" for one in status.conditions)
    found: dict[str, float] = {"ready": ready, "restarts": status.restarts}
    if status.last_batch_time or status.batch >= 0:
        found |= {
            "input_records_per_second": status.input_rate,
            "process_records_per_second": status.process_rate,
            "batch_seconds": status.batch_ms / 1000,
            "state_rows": status.state_rows,
            "state_bytes": status.state_bytes,
            "rows_read_total": status.rows_in,
            "dead_letters_total": status.dead_letters,
            "late_rows_total": status.late_rows,
        }
    if status.rows_out >= 0:
        found["rows_written_total"] = status.rows_out
    for name, instant in (
        ("last_batch_timestamp_seconds", status.last_batch_time),
        ("watermark_timestamp_seconds", status.watermark),
    ):
        if (at_s := _seconds(instant)) is not None:
            found[name] = at_s
    return found


def _seconds(instant: str) -> float | None:
    """None for a time that is absent or that Spark wrote in another form."""
    try:
        return datetime.fromisoformat(instant).timestamp()
    except ValueError:
        return None
