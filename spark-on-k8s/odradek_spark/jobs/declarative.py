"""Runs a project of Spark Declarative Pipelines: spec.sdp.

    ProjectRun(job).run() -> exit code            as JobRun
    dry_run(spark, job) -> Look                   the project's graph is analysed, nothing is run

Spark runs such a project in updates: each one brings all tables up to date with what is in the
sources when it starts, and ends. `mode: availableNow` is one update, `mode: streaming` one every
`trigger`. The project is what `spark-pipelines run` runs, with pyspark's own loader; the pipeline
provides Spark, and where checkpoints, tables and their catalog are:

    <checkpoint>/storage     `storage` of spark-pipeline.yml is ignored
    <checkpoint>/tables      spark.sql.warehouse.dir
    <checkpoint>/catalog     the Hive catalog's database
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek_api.pipeline.common import seconds_of
from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.status import FlowStatus
from odradek_spark import project
from odradek_spark.jobs.build import Partitions
from odradek_spark.jobs.flows import Flows, first_failure, flows_of, stop, unresolved
from odradek_spark.jobs.guard import check_guard, guard
from odradek_spark.jobs.look import Look
from odradek_spark.jobs.run import DONE, FAILED, POLL_S, JobRun
from odradek_spark.schemas import first_line
from odradek_spark.session import connect
from odradek_spark.session.files import Store
from odradek_spark.session.start import settings_of

SPEC_FILES = ("spark-pipeline.yml", "spark-pipeline.yaml")
UNRESOLVED = "Failed to resolve flows"  # how Spark's error begins
UPDATE_EVERY_S = 60.0  # without spec.trigger; an update computes materialized views anew


def settings(job: Job, token: str, *, dry_run_in: str = "") -> dict[str, Any]:
    """Of the session. `dry_run_in`: a temporary directory; the catalog is then in memory, because
    a dry run must write nothing, and the database of a running pipeline is locked."""
    base = job.checkpoint_location
    made: dict[str, Any] = {"spark.sql.warehouse.dir": dry_run_in or f"{base}/tables"}
    if not dry_run_in:
        url = f"jdbc:derby:;databaseName={base}/catalog;create=true"
        made["spark.sql.catalogImplementation"] = "hive"
        made["spark.hadoop.javax.jdo.option.ConnectionURL"] = url
    return made | settings_of(job) | connect.settings(token)


class Project:
    """The project's graph in a session of Spark Connect (session/connect.py), for one update.

    Spark runs a graph once, and keeps it as long as the session.
    """

    def __init__(self, job: Job, client: Any, holder: Any, flows: Flows) -> None:
        self.flows = flows
        self._client, self._holder = client, holder
        storage = f"{job.checkpoint_location}/storage"
        self._storage = f"file://{storage}" if storage.startswith("/") else storage
        self._path = _spec_file(job)
        with contextlib.redirect_stdout(sys.stderr):
            self._graph = self._load(job)

    def _load(self, job: Job) -> str:
        from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
        from pyspark.pipelines.spark_connect_graph_element_registry import (
            SparkConnectGraphElementRegistry,
        )
        from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

        project.set_job(job)
        try:
            spec = load_pipeline_spec(self._path)
            for name, value in spec.configuration.items():
                self._client.conf.set(name, value)
            graph = create_dataflow_graph(
                self._client, spec.catalog, spec.database, spec.configuration
            )
            registry = SparkConnectGraphElementRegistry(self._client, graph)
            register_definitions(self._path, registry, spec, self._client, graph)
        except SpecError:
            raise
        except Exception as error:  # of the project's own code, too
            raise SpecError("spec.sdp", _blame(error, self._path.parent)) from error
        return str(graph)

    def update(self, *, dry: bool = False) -> None:
        """One update of all tables; it prints Spark's events."""
        from pyspark.pipelines.spark_connect_pipeline import handle_pipeline_events, start_run

        try:
            with contextlib.redirect_stdout(sys.stderr):
                events = start_run(
                    self._client, self._graph, full_refresh=[], full_refresh_all=False, refresh=[],
                    dry=dry, storage=self._storage,
                )  # fmt: skip
                handle_pipeline_events(events)
        except PySparkException as error:
            if not first_line(error).startswith(UNRESOLVED):
                raise
            message = unresolved(self._holder, self._graph) or first_line(error)
            raise SpecError("spec.sdp", message) from None

    def stop(self) -> None:
        """Ends the update. Releasing the session would wait for it (Spark 4.2.0)."""
        stop(self._holder, self._graph)

    def look(self) -> None:
        self.flows.read(self._holder, self._graph)

    def graph(self) -> list[FlowStatus]:
        return flows_of(self._holder, self._graph)


class ProjectRun(JobRun):
    """A job with spec.sdp."""

    def __init__(self, job: Job, token: str = "") -> None:
        """`token`: of a session that exists."""
        super().__init__(job)
        self._began = 0.0  # the update
        self._token = token or secrets.token_hex(16)

    def settings(self) -> dict[str, Any]:
        return settings(self.job, self._token)

    def run_in(self, spark: SparkSession, partitions: Partitions | None = None) -> int:  # noqa: ARG002
        guard(Store(spark), self.job)
        jvm: Any = spark._jvm  # Derby would write its log into the working directory
        log = f"{self.job.checkpoint_location}/derby.log"
        jvm.java.lang.System.setProperty("derby.stream.error.file", log)
        flows = Flows()
        while not self._stop.is_set():
            self._began = time.monotonic()
            with connect.connected(spark, self._token) as (client, holder):
                code = self._update(spark, Project(self.job, client, holder, flows))
            if code != DONE:
                return code
            if self.job.spec.mode != "streaming" and not self._stop.is_set():
                self._report(state="Completed")
                return DONE
            self._wait(every_s(self.job.spec.trigger))
        self._report(state="Stopped")
        return DONE

    def _update(self, spark: SparkSession, loaded: Project) -> int:
        """Runs one update and reports the flows meanwhile; SIGTERM aborts it."""
        failures: list[Exception] = []

        def update() -> None:
            try:
                loaded.update()
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=update, name="update", daemon=True)
        thread.start()
        self._report(state="Running")
        while thread.is_alive() and not self._stop.wait(POLL_S):
            self._end_with_parent()
            self._look(loaded)
        while thread.is_alive() and self._stop.is_set():
            loaded.stop()
            spark.sparkContext.cancelAllJobs()
            thread.join(POLL_S)
        if self._stop.is_set():
            return DONE
        thread.join()
        self._look(loaded)
        if not failures:
            return DONE
        if not isinstance(failures[0], PySparkException):
            raise failures[0]
        message = first_failure(loaded.flows.flows) or first_line(failures[0])
        self._report(state="Failed", field="spec.sdp", message=message)
        return FAILED

    def _look(self, loaded: Project) -> None:
        loaded.look()
        found = loaded.flows
        if (found.queries, found.flows) != (self.status.queries, self.status.flows):
            self._report(queries=dict(found.queries), flows=list(found.flows))

    def _wait(self, every: float) -> None:
        """Until the next update is due."""
        while (left := self._began + every - time.monotonic()) > 0:
            if self._stop.wait(min(left, POLL_S)):
                return
            self._end_with_parent()


def dry_run(spark: SparkSession, job: Job, token: str) -> Look:
    """Spark's own check of the project, and the flows that it would run."""
    check_guard(Store(spark), job)
    with connect.connected(spark, token) as (client, holder):
        loaded = Project(job, client, holder, Flows())
        try:
            loaded.update(dry=True)
        except PySparkException as error:
            raise SpecError("spec.sdp", first_line(error)) from None
        return Look(flows=loaded.graph())


def every_s(trigger: str | None) -> float:
    return UPDATE_EVERY_S if trigger is None else seconds_of(trigger)


def _spec_file(job: Job) -> Path:
    assert job.spec.sdp is not None
    directory = Path(job.directory) / job.spec.sdp.path
    found = [directory / name for name in SPEC_FILES if (directory / name).is_file()]
    if not found:
        raise SpecError("spec.sdp.path", f"{directory} has no {SPEC_FILES[0]}")
    return found[0]


def _blame(error: Exception, directory: Path) -> str:
    """ "transformations/visits.py line 7: NameError: …", if it was raised in the project."""
    where = ""
    trace = error.__traceback__
    while trace is not None:
        name = Path(trace.tb_frame.f_code.co_filename)
        if name.is_relative_to(directory.resolve()):
            where = f"{name.relative_to(directory.resolve())} line {trace.tb_lineno}: "
        trace = trace.tb_next
    kind = "" if isinstance(error, PySparkException) else f"{type(error).__name__}: "
    return f"{where}{kind}{first_line(error)}"
