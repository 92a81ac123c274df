"""Creates the SparkSession of a job; in local mode with settings for a small machine.

A user's `sparkConf` takes precedence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek_api.base import settings_text
from odradek_spark.session.jars import jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Retry failed tasks in local mode too, so that a broker's restart does not fail the pipeline.
LOCAL_MASTER = "local[*,8]"

COMMON = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # Detect malformed CSV independently of which columns are selected.
    "spark.sql.csv.parser.columnPruning.enabled": "false",
}

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # The default of 200 tasks per shuffle suits clusters; each costs about 10 ms.
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:-UsePerfData",
}


def settings(
    name: str, master: str | None, user: Mapping[str, object], jar_files: str
) -> dict[str, str]:
    """The settings of the session. Does no I/O."""
    made = {"spark.app.name": name, **COMMON}
    if jar_files:
        made["spark.jars"] = jar_files
    if master is not None:
        made["spark.master"] = master
    if master is not None and master.startswith("local"):
        made |= LOCAL
    return made | settings_text(user)


def start_session(
    name: str, master: str | None = LOCAL_MASTER, user: Mapping[str, object] | None = None
) -> SparkSession:
    """With master None, spark-submit started this process and provides the jars."""
    from pyspark.sql import SparkSession  # here: the settings above are known without Spark

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    files = "" if master is None else ",".join(str(path) for path in jars())
    builder = SparkSession.builder
    for key, value in settings(name, master, user or {}, files).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark
