"""Runs a job to its end: starts the queries, follows them, says how it goes, stops when asked.

JobRun(job).run() -> exit code      0: done or stopped   1: failed, may be tried again
                                    2: the spec is wrong, trying again would not help
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

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.status import JobStatus, QueryProgress
from odradek_spark.config import write_json
from odradek_spark.jobs.build import Partitions, build, look
from odradek_spark.jobs.guard import guard
from odradek_spark.jobs.progress import explain_failure, progress
from odradek_spark.schemas import first_line
from odradek_spark.session.files import Store
from odradek_spark.session.jars import JarsMissingError
from odradek_spark.session.pod import OwnPod
from odradek_spark.session.start import start_session
from odradek_spark.sinks import write

LOOK_S = 0.5
DONE, FAILED, WRONG_SPEC = 0, 1, 2


class JobRun:
    def __init__(self, job: Job, say: Callable[[JobStatus], None] = lambda _: None) -> None:
        self.job = job
        self.status = JobStatus(pipeline=job.key, state="Starting", pid=os.getpid(), since=_now())
        self._say = say
        self._pod = OwnPod()
        self._stop = threading.Event()

    def stop(self, *_: Any) -> None:
        self._stop.set()

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        self._tell()
        try:
            partitions = look(self.job)
            spark = start_session(self.job.key, self.job.master, self.job.spec.spark_conf)
            try:
                return self.run_in(spark, partitions)
            finally:
                spark.stop()
        except SpecError as error:
            self._tell(state="Failed", field=error.field, message=error.message)
            return WRONG_SPEC
        except JarsMissingError as error:
            self._tell(state="Failed", message=str(error))
            return WRONG_SPEC
        except PySparkException as error:  # no Java, a setting that it does not take
            self._tell(state="Failed", message=f"Spark did not start: {first_line(error)}")
            return FAILED

    def run_in(self, spark: SparkSession, partitions: Partitions | None = None) -> int:
        """In a session that is there already."""
        partitions = look(self.job) if partitions is None else partitions
        try:
            if self.job.spec.mode == "batch":
                return self._batch(spark, partitions)
            return self._streaming(spark, partitions)
        except (StreamingQueryException, PySparkException) as error:
            field, message = explain_failure(str(error))
            self._tell(state="Failed", field=field, message=message)
            return FAILED

    def _batch(self, spark: SparkSession, partitions: Partitions) -> int:
        self._tell(state="Running")
        frame, letters = build(spark, self.job, partitions)
        if letters is not None:  # first: what does not parse is never lost to a failure below
            write.write_dead_letters(self.job, letters)
        write.write_batch(self.job, frame)
        self._tell(state="Completed")
        return DONE

    def _streaming(self, spark: SparkSession, partitions: Partitions) -> int:
        frame, letters = build(spark, self.job, partitions)
        guard(Store(spark), self.job)
        at = self.job.checkpoint_location
        queries = {write.MAIN: write.start(self.job, frame, at)}
        try:
            if letters is not None:
                queries[write.DEAD_LETTER] = write.start_dead_letters(self.job, letters, at)
            self._tell(state="Running")
            parent = os.getppid()
            while not self._stop.wait(LOOK_S) and any(q.isActive for q in queries.values()):
                if self.job.end_with_parent and os.getppid() != parent:
                    self.stop()
                self._look(queries)
                if any(q.exception() is not None for q in queries.values()):
                    break
            self._look(queries)
        finally:
            active = [q for q in queries.values() if q.isActive]
            for query in active:
                query.stop()
        for query in queries.values():
            if (failure := query.exception()) is not None and query not in active:
                raise failure
        self._tell(state="Stopped" if active else "Completed")
        return DONE

    def _look(self, queries: dict[str, StreamingQuery]) -> None:
        known: dict[str, QueryProgress] = dict(self.status.queries)
        for name, query in queries.items():
            for said in query.recentProgress:
                document = json.loads(said.json)
                before = known.get(name)
                if before is None or document["timestamp"] > before.checkpoint:
                    known[name] = progress(document, before)
        if known != self.status.queries:
            self._tell(queries=known)

    def _tell(self, **news: Any) -> None:
        fields = {f: getattr(self.status, f) for f in self.status.__struct_fields__}
        self.status = JobStatus(**{**fields, **news})
        if self.job.status_file:
            write_json(Path(self.job.status_file), self.status)
        self._pod.tell(self.status)
        self._say(self.status)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
