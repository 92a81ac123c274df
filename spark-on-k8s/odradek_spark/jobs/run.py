"""Runs a job: starts its queries, monitors and reports them, and stops on SIGTERM.

JobRun(job).run() -> exit code      0: completed or stopped   1: failed, a restart may help
                                    2: the spec is refused, a restart would not help
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.status import JobStatus, QueryProgress
from odradek_spark.config import write_json
from odradek_spark.jobs.build import Partitions, build, check_topics
from odradek_spark.jobs.guard import guard
from odradek_spark.jobs.progress import explain_failure, progress
from odradek_spark.schemas import first_line
from odradek_spark.session.files import Store
from odradek_spark.session.jars import JarsMissingError
from odradek_spark.session.pod import OwnPod
from odradek_spark.session.start import start_session
from odradek_spark.sinks import write

POLL_S = 0.5
DONE, FAILED, WRONG_SPEC = 0, 1, 2


class JobRun:
    def __init__(self, job: Job, on_status: Callable[[JobStatus], None] = lambda _: None) -> None:
        self.job = job
        self.status = JobStatus(pipeline=job.key, state="Starting", pid=os.getpid(), since=_now())
        self._on_status = on_status
        self._pod = OwnPod()
        self._stop = threading.Event()

    def stop(self, *_: Any) -> None:
        self._stop.set()

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        self._report()
        try:
            partitions = check_topics(self.job)
            spark = start_session(self.job.key, self.job.master, self.job.spec.spark_conf)
            try:
                return self.run_in(spark, partitions)
            finally:
                spark.stop()
        except SpecError as error:
            self._report(state="Failed", field=error.field, message=error.message)
            return WRONG_SPEC
        except JarsMissingError as error:
            self._report(state="Failed", message=str(error))
            return WRONG_SPEC
        except PySparkException as error:  # no Java, or a setting that Spark refuses
            self._report(state="Failed", message=f"Spark did not start: {first_line(error)}")
            return FAILED

    def run_in(self, spark: SparkSession, partitions: Partitions | None = None) -> int:
        """Runs in an existing session."""
        partitions = check_topics(self.job) if partitions is None else partitions
        try:
            if self.job.spec.mode == "batch":
                return self._batch(spark, partitions)
            return self._streaming(spark, partitions)
        except (StreamingQueryException, PySparkException) as error:
            field, message = explain_failure(str(error))
            self._report(state="Failed", field=field, message=message)
            return FAILED

    def _batch(self, spark: SparkSession, partitions: Partitions) -> int:
        self._report(state="Running")
        frame, letters = build(spark, self.job, partitions)
        if letters is not None:  # first, so that a failure below does not lose them
            write.write_dead_letters(self.job, letters)
        write.write_batch(self.job, frame)
        self._report(state="Completed")
        return DONE

    def _streaming(self, spark: SparkSession, partitions: Partitions) -> int:
        frame, letters = build(spark, self.job, partitions)
        guard(Store(spark), self.job)
        at = self.job.checkpoint_location
        queries = {write.MAIN: write.start(self.job, frame, at)}
        try:
            if letters is not None:
                queries[write.DEAD_LETTER] = write.start_dead_letters(self.job, letters, at)
            self._report(state="Running")
            parent = os.getppid()
            while not self._stop.wait(POLL_S) and any(q.isActive for q in queries.values()):
                if self.job.end_with_parent and os.getppid() != parent:
                    self.stop()
                self._poll(queries)
                if any(q.exception() is not None for q in queries.values()):
                    break
            self._poll(queries)
        finally:
            active = [q for q in queries.values() if q.isActive]
            for query in active:
                query.stop()
        for query in queries.values():
            if (failure := query.exception()) is not None and query not in active:
                raise failure
        self._report(state="Stopped" if active else "Completed")
        return DONE

    def _poll(self, queries: dict[str, StreamingQuery]) -> None:
        known: dict[str, QueryProgress] = dict(self.status.queries)
        for name, query in queries.items():
            for recent in query.recentProgress:
                document = json.loads(recent.json)
                before = known.get(name)
                if before is None or document["timestamp"] > before.checkpoint:
                    known[name] = progress(document, before)
        if known != self.status.queries:
            self._report(queries=known)

    def _report(self, **changes: Any) -> None:
        self.status = msgspec.structs.replace(self.status, **changes)
        if self.job.status_file:
            write_json(Path(self.job.status_file), self.status)
        self._pod.report(self.status)
        self._on_status(self.status)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
