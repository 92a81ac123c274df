"""For the driver's program: runs a job, or looks at it without running it."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek_api.pipeline.job import Job, SpecError
from odradek_spark.jobs import declarative
from odradek_spark.jobs.build import check_topics
from odradek_spark.jobs.look import Look, analyse, preview
from odradek_spark.jobs.run import JobRun
from odradek_spark.jobs.samples import run_tests
from odradek_spark.schemas import first_line
from odradek_spark.session.jars import JarsMissingError
from odradek_spark.session.start import LOCAL_MASTER, settings_of, start_session


def run_of(job: Job) -> JobRun:
    return JobRun(job) if job.spec.sdp is None else declarative.ProjectRun(job)


def look_at(job: Job, rows: int | None, *, test: bool = False) -> Look:
    """For the command line: `analyse`, `preview` with a number of rows, or the tests."""
    try:
        if test:
            return _in_session(
                job, settings_of(job), lambda spark: Look(tests=run_tests(spark, job))
            )
        if job.spec.sdp is not None:
            return _look_at_project(job, rows)
        partitions = check_topics(job)

        def look(spark: SparkSession) -> Look:
            if rows:
                return preview(spark, job, partitions, rows)
            return analyse(spark, job, partitions)

        return _in_session(job, settings_of(job), look)
    except SpecError as error:
        return Look(field=error.field, message=error.message)
    except JarsMissingError as error:
        return Look(message=str(error))
    except PySparkException as error:
        return Look(message=first_line(error))


def _look_at_project(job: Job, rows: int | None) -> Look:
    if rows:
        raise SpecError("spec.sdp", "has no preview; `odradek pipeline plan` is its dry run")
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="odradek-dry-run-") as directory:
        made = declarative.settings(job, token, dry_run_in=directory)
        return _in_session(job, made, lambda spark: declarative.dry_run(spark, job, token))


def _in_session(job: Job, user: dict[str, object], look: Callable[[SparkSession], Look]) -> Look:
    spark = start_session(job.key, job.master or LOCAL_MASTER, user)
    try:
        return look(spark)
    finally:
        spark.stop()
