"""Runs a job: starts its queries, monitors and reports them, and stops on SIGTERM.

JobRun(job).run() -> exit code      0: completed or stopped   1: failed, a restart may help
                                    2: the spec is refused, a restart would not help
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from py4j.protocol import Py4JJavaError  # a task of a batch failed
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from odradek_api.pipeline.job import Job, NotReadyError, SpecError
from odradek_api.pipeline.outputs import DEAD_LETTER
from odradek_api.pipeline.status import JobStatus, QueryProgress
from odradek_spark.config import write_json
from odradek_spark.credentials import revision
from odradek_spark.jobs.build import Partitions, build, check_topics
from odradek_spark.jobs.guard import guard
from odradek_spark.jobs.progress import NO_SINK, explain_failure, progress
from odradek_spark.schemas import first_line
from odradek_spark.session.files import Store
from odradek_spark.session.jars import JarsMissingError
from odradek_spark.session.pod import OwnPod
from odradek_spark.session.start import settings_of, start_session
from odradek_spark.sinks import write
from odradek_spark.sinks.batches import ExactlyOnceSink
from odradek_spark.sinks.upserts import Upserts
from odradek_spark.sources.group import PublishedOffsets
from odradek_spark.sources.lookups import Lookups
from odradek_spark.sources.pacing import Pace

POLL_S = 0.5
BATCH_S = 10.0  # for the batch in progress, before queries start anew
DONE, FAILED, WRONG_SPEC = 0, 1, 2

logger = logging.getLogger(__name__)


class JobRun:
    def __init__(self, job: Job, on_status: Callable[[JobStatus], None] = lambda _: None) -> None:
        self.job = job
        self.status = JobStatus(pipeline=job.key, state="Starting", pid=os.getpid(), since=_now())
        self._on_status = on_status
        self._pod = OwnPod()
        self._stop = threading.Event()
        self._parent = os.getppid()
        self._pace: Pace | None = None
        self._group: PublishedOffsets | None = None
        self._failed = NO_SINK  # the sink that a failure is of
        self._sinks: dict[str, ExactlyOnceSink | Upserts] = {}  # by query

    def stop(self, *_: Any) -> None:
        self._stop.set()

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        self._report()
        try:
            partitions = check_topics(self.job)
            spark = start_session(self.job.key, self.job.master, self.settings())
            try:
                return self.run_in(spark, partitions)
            finally:
                spark.stop()
        except SpecError as error:
            self._report(state="Failed", field=error.field, message=error.message)
            return FAILED if isinstance(error, NotReadyError) else WRONG_SPEC
        except JarsMissingError as error:
            self._report(state="Failed", message=str(error))
            return WRONG_SPEC
        except PySparkException as error:  # no Java, or a setting that Spark refuses
            self._report(state="Failed", message=f"Spark did not start: {first_line(error)}")
            return FAILED

    def settings(self) -> Mapping[str, Any]:
        """Of the session, in addition to those of every session."""
        return settings_of(self.job)

    def run_in(self, spark: SparkSession, partitions: Partitions | None = None) -> int:
        """Runs in an existing session."""
        partitions = check_topics(self.job) if partitions is None else partitions
        try:
            if self.job.spec.mode == "batch":
                return self._batch(spark, partitions)
            return self._streaming(spark, partitions)
        except write.SinkError as error:
            self._report(state="Failed", field=error.field, message=str(error))
            return FAILED
        except (StreamingQueryException, PySparkException, Py4JJavaError) as error:
            field, message = explain_failure(str(error), self._failed)
            self._report(state="Failed", field=field, message=message)
            return FAILED

    def _batch(self, spark: SparkSession, partitions: Partitions) -> int:
        self._report(state="Running")
        frames, letters, _ = build(spark, self.job, partitions)
        if letters is not None:  # first, so that a failure below does not lose them
            write.write_dead_letters(self.job, letters)
        for output, frame in frames:
            self._failed = output
            write.write_batch(self.job, output, frame)
        self._report(state="Completed")
        return DONE

    def _streaming(self, spark: SparkSession, partitions: Partitions) -> int:
        stopped = True
        while stopped and not self._stop.is_set():
            stopped = self._run_queries(spark, partitions)
        self._report(state="Stopped" if stopped else "Completed")
        return DONE

    def _run_queries(self, spark: SparkSession, partitions: Partitions) -> bool:
        """Until they end by themselves or are stopped: by a signal, or because the credentials of
        a user changed. Returns whether they were stopped."""
        credentials = self._revisions()  # first: a later change is noticed
        files = Store(spark)
        self._pace = Pace(spark, self.job, files)
        frames, letters, lookups = build(spark, self.job, partitions, self._pace.first)
        identity = guard(files, self.job)
        self._sinks = {}
        for output, frame in frames:  # all before the first query: one that is refused stops all
            sink = write.batch_sink(self.job, output, frame, files, identity)
            if sink is not None:
                self._sinks[output.query] = sink
        names = [output.query for output, _ in frames] + ([DEAD_LETTER] if letters else [])
        self._group = PublishedOffsets(self.job, names)
        queries: dict[str, StreamingQuery] = {}
        lookups.refresh(time.monotonic())
        try:
            for output, frame in frames:
                batches = self._sinks.get(output.query)
                queries[output.query] = write.start(self.job, output, frame, batches)
            if letters is not None:
                queries[DEAD_LETTER] = write.start_dead_letters(self.job, letters)
            self._report(state="Running")
            self._follow(queries, credentials, lookups)
            self._poll(queries)
        finally:
            active = [q for q in queries.values() if q.isActive]
            for query in active:
                query.stop()
            lookups.close()
            self._poll(queries)
            self._group.close()
        for name, query in queries.items():
            if (failure := query.exception()) is not None and query not in active:
                self._failed = next((o for o, _ in frames if o.query == name), NO_SINK)
                raise failure
        return bool(active)

    def _follow(
        self, queries: dict[str, StreamingQuery], credentials: dict[str, int], lookups: Lookups
    ) -> None:
        while not self._stop.wait(POLL_S) and any(q.isActive for q in queries.values()):
            self._end_with_parent()
            self._poll(queries)
            lookups.refresh(time.monotonic())
            if any(q.exception() is not None for q in queries.values()):
                return
            now = self._revisions()
            if now != credentials and all(now.values()):
                logger.warning("%s: a user has new credentials: the queries start anew with them",
                               self.job.key)  # fmt: skip
                self._await_batches(queries)
                return

    def _revisions(self) -> dict[str, int]:
        return {name: revision(directory) for name, directory in self.job.users.items()}

    def _await_batches(self, queries: dict[str, StreamingQuery]) -> None:
        """Waits for the running batches: one that is stopped in the middle is repeated, and a topic
        then has its records twice. At most BATCH_S, because a batch that cannot connect any more
        does not end."""
        deadline = time.monotonic() + BATCH_S
        while any(q.isActive and q.status["isTriggerActive"] for q in queries.values()):
            if time.monotonic() > deadline or self._stop.wait(POLL_S / 10):
                return

    def _end_with_parent(self) -> None:
        if self.job.end_with_parent and os.getppid() != self._parent:
            self.stop()

    def _poll(self, queries: dict[str, StreamingQuery]) -> None:
        known: dict[str, QueryProgress] = dict(self.status.queries)
        for name, query in queries.items():
            for recent in query.recentProgress:
                document = json.loads(recent.json)
                before = known.get(name)
                if before is None or document["timestamp"] > before.checkpoint:
                    known[name] = self._reported(name, query, document, before)
        for name, sink in self._sinks.items():  # Spark does not count what they write
            if name in known:
                known[name] = msgspec.structs.replace(known[name], rows_out=sink.rows_out)
        if self._group is not None:
            self._group.publish()
        if known != self.status.queries:
            self._report(queries=known)

    def _reported(
        self, name: str, query: StreamingQuery, document: dict[str, Any],
        before: QueryProgress | None,
    ) -> QueryProgress:  # fmt: skip
        """One of Spark's reports, which follow the commit of their batch."""
        made = progress(document, before)
        if self._group is not None:
            self._group.seen(name, document)
        if self._pace is None:
            return made
        rows = made.rows - (before.rows if before is not None else 0)
        return msgspec.structs.replace(made, batch_limit=self._pace.adapt(name, query, made, rows))

    def _report(self, **changes: Any) -> None:
        self.status = msgspec.structs.replace(self.status, **changes)
        if self.job.status_file:
            write_json(Path(self.job.status_file), self.status)
        self._pod.report(self.status)
        self._on_status(self.status)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
