"""Creates the SparkSession of a job; in local mode with settings for a small machine.

A user's `sparkConf` takes precedence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek_api.base import settings_text
from odradek_api.pipeline.outputs import outputs
from odradek_spark.session.class_archive import JAVA_OPTIONS, archive_options
from odradek_spark.session.jars import jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek_api.pipeline.job import Job

# Retry failed tasks in local mode too, so that a broker's restart does not fail the pipeline.
LOCAL_MASTER = "local[*,8]"

COMMON = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # Detect malformed CSV independently of which columns are selected.
    "spark.sql.csv.parser.columnPruning.enabled": "false",
    # Since 4.2 Spark exchanges rows with Python functions as Arrow by default, which converts types
    # by other rules than a pipeline of 4.0 has seen.
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    "spark.sql.execution.pythonUDTF.arrow.enabled": "false",
}

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

GATEWAY = "PYSPARK_GATEWAY_PORT"  # spark-submit sets it for the program that it starts
SHUFFLES = "spark.sql.shuffle.partitions"

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # The default of 200 tasks per shuffle suits clusters; each costs about 10 ms.
    SHUFFLES: str(2 * (os.cpu_count() or 1)),
    "spark.databricks.delta.snapshotPartitions": "2",  # likewise; Delta's default is 50
    JAVA_OPTIONS: "-XX:+UseSerialGC -XX:-UsePerfData",
}


def settings(
    name: str,
    master: str | None,
    user: Mapping[str, object],
    jar_files: str,
    *,
    submitted: bool = False,
) -> dict[str, str]:
    """The settings of the session. Does no I/O.

    `submitted`: spark-submit has started the JVM already, with memory, addresses and jars.
    """
    made = {"spark.app.name": name, **COMMON}
    if jar_files:
        made["spark.jars"] = jar_files
    if master is not None:
        made["spark.master"] = master
    if master is not None and master.startswith("local"):
        made |= {SHUFFLES: LOCAL[SHUFFLES]} if submitted else LOCAL
    return made | settings_text(user)


def settings_of(job: Job) -> dict[str, object]:
    """The job's own settings, with those of Delta Lake if it reads or writes such a table."""
    tables = [output.sink.table for output in outputs(job.spec)]
    delta = any(source.table is not None for source in job.spec.sources)
    delta = delta or any(
        one.table is not None and one.table.format == "delta" for one in job.spec.lookups
    )
    delta = delta or any(table is not None and table.format == "delta" for table in tables)
    return {**(DELTA if delta or job.spec.sdp else {}), **job.spec.spark_conf}


def start_session(
    name: str, master: str | None = LOCAL_MASTER, user: Mapping[str, object] | None = None
) -> SparkSession:
    """With master None, spark-submit decides about it."""
    from pyspark.sql import SparkSession  # imported here: `settings` works without Spark

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = GATEWAY in os.environ
    given = submitted or master is None
    files = "" if given else ",".join(str(path) for path in jars())
    made = settings(name, master, user or {}, files, submitted=submitted)
    if not given and (archive := archive_options()):
        made[JAVA_OPTIONS] = f"{archive} {made.get(JAVA_OPTIONS, '')}"
    builder = SparkSession.builder
    for key, value in made.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark
