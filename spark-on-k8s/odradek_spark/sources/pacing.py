"""Adapts the records of a batch, so that batches take as long as `batchTarget` (back-pressure).

    limit  batch           target 10 s
    10000  took 2 s        → 40000, because records were left
    40000  took 14 s       → 28571

Spark reads `maxOffsetsPerTrigger` when a query starts, and keeps it as a limit of each source.
This replaces the limits of a running query, which the next batch then has. Each sink's query has
limits of its own. The last one is in the checkpoint, so that a driver that starts with much to
catch up does not begin with a batch that is too large.

    <checkpoint>/odradek-batch-limit.json    {"limit": 28571}
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from odradek_api.pipeline.common import seconds_of
from odradek_api.pipeline.job import Job
from odradek_api.pipeline.status import QueryProgress

FIRST = 10_000  # records of each source in the first batch ever
LEAST = 100
GROWTH = 4.0  # at most, from one batch to the next: the first ones tell little
TOO_LONG, SHORT = 1.25, 0.8  # of the target; in between the limit stays
KEPT = 2.0  # a change by this factor is written down
LIMIT_FILE = "odradek-batch-limit.json"


class LimitFiles(Protocol):
    def read(self, path: str) -> str | None: ...
    def write(self, path: str, text: str) -> None: ...


def next_limit(limit: int, rows: int, batch_ms: int, target_ms: float, *, behind: bool) -> int:
    """The limit after a batch; `behind`: the batch has left records."""
    if rows == 0 or batch_ms <= 0:
        return limit
    ratio = target_ms / batch_ms
    if ratio < 1 / TOO_LONG:
        return max(LEAST, min(limit, round(min(limit, rows) * ratio)))
    if ratio > 1 / SHORT and behind:
        return max(limit, round(limit * min(ratio, GROWTH)))
    return limit


class Pace:
    """The limits of one run of a job's queries."""

    def __init__(self, spark: Any, job: Job, files: LimitFiles) -> None:
        self._spark, self._files = spark, files
        self._path = f"{job.checkpoint_location}/{LIMIT_FILE}"
        target = job.spec.batch_target
        self._target_ms = 1000 * seconds_of(target) if target is not None else 0.0
        text = files.read(self._path) if target is not None else None
        self._kept = int(json.loads(text)["limit"]) if text else 0
        given = [n for s in job.spec.sources if (n := s.max_offsets_per_trigger) is not None]
        self._most = min(given, default=0)  # 0: no limit
        self.first = self._at_most(self._kept or FIRST) if target is not None else None
        self._limits: dict[str, int] = {}  # by query

    def adapt(self, name: str, query: Any, progress: QueryProgress, rows: int) -> int:
        """After a batch of `rows` records; returns the limit, 0 without a target."""
        if self.first is None:
            return 0
        before = self._limits.get(name, self.first)
        behind = sum(progress.lag.values()) > 0
        limit = next_limit(before, rows, progress.batch_ms, self._target_ms, behind=behind)
        limit = self._at_most(limit)
        if limit != before and query.isActive:
            replace_limits(self._spark, query, limit)
        self._limits[name] = limit
        self._keep(min(self._limits.values()))
        return limit

    def _at_most(self, limit: int) -> int:
        return min(limit, self._most) if self._most else limit

    def _keep(self, limit: int) -> None:
        if not self._kept or not 1 / KEPT < limit / self._kept < KEPT:
            self._files.write(self._path, json.dumps({"limit": limit}))
            self._kept = limit


def replace_limits(spark: Any, query: Any, limit: int) -> None:
    """Of the Kafka sources of a running query (Spark 4.2.0's own field; it has no option)."""
    read_limit = spark._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows(limit)
    execution = query._jsq.streamingQuery()
    limits = execution.uniqueSources()
    sources = limits.keysIterator()
    while sources.hasNext():
        source = sources.next()
        if source.getClass().getSimpleName() == "KafkaMicroBatchStream":
            limits = limits.updated(source, read_limit)
    getattr(execution, "uniqueSources_$eq")(limits)
