"""A SparkSession for a job; on a laptop (`local[…]`) with settings that suit one.

A user's `sparkConf` comes last and wins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from odradek_api.base import settings_text
from odradek_spark.session.jars import jars

# Failed tasks are tried again in local mode too: a broker that restarts is no reason to end.
LOCAL_MASTER = "local[*,8]"

COMMON = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # A file that is not CSV of the schema is found out whichever columns are asked for.
    "spark.sql.csv.parser.columnPruning.enabled": "false",
}

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # 200 tasks per shuffle are for clusters; each costs some 10 ms here.
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:-UsePerfData",
}


def settings(
    name: str, master: str | None, user: Mapping[str, object], jar_files: str
) -> dict[str, str]:
    """Pure: what the session is made with."""
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
    """Where spark-submit began this process (master None), it brought the jars along."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    files = "" if master is None else ",".join(str(path) for path in jars())
    builder = SparkSession.builder
    for key, value in settings(name, master, user or {}, files).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark
