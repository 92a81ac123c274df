"""Spark in `odradek local demo`: counts the writer's orders in windows while brokers restart.

A guest of the demo (demo_guest.py). At the end every window of every customer is compared with
what the reader read, by the records' own times: a batch that was left out or counted twice shows.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from odradek_cli.demo_clients import customer
from odradek_cli.demo_guest import Findings
from odradek_cli.errors import CliError
from odradek_cli.window_counts import (
    FINISH_S,
    Counted,
    Window,
    WindowPipeline,
    difference,
    make_topics,
    window,
)

if TYPE_CHECKING:
    from odradek_cli.demo_clients import ClientsSeen

COUNTS = "orders-by-customer"
SPARK_BYTES = 2 << 30  # a driver with 1 GB of heap, and its other memory


def spark_absent(available_bytes: int) -> str:
    """Why the demo runs without Spark, and what to do about it; empty if it runs with it."""
    from odradek_operator.local.pipeline_processes import spark_missing
    from odradek_spark.session.jars import JarsMissingError, jars

    if missing := spark_missing():
        return missing
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "Java is not installed: apt-get install -y openjdk-17-jdk-headless"
    if available_bytes < SPARK_BYTES:
        return f"it needs {SPARK_BYTES >> 30} GB of memory, and {available_bytes >> 20} MB are free"
    try:
        jars()
    except JarsMissingError as error:
        return str(error)
    return ""


def expected(seen: ClientsSeen) -> Counter[Window]:
    """Counts of the records that the reader read, by window."""
    return Counter(window(ms / 1000, customer(number)) for number, ms in seen.stamps)


class SparkGuest:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pipeline: WindowPipeline | None = None

    def start(self, bootstrap: str, topic: str) -> None:
        """Called before the load: on two cores Spark starts half as fast under load."""
        make_topics(bootstrap, COUNTS)
        counted = Counted(topic, "customer", "_timestamp", "order BIGINT, customer STRING", COUNTS)
        self._pipeline = WindowPipeline(bootstrap, self._directory, counted)
        self._pipeline.start()

    def follow(self) -> None:
        assert self._pipeline is not None
        self._pipeline.counting()

    def line(self) -> str:
        assert self._pipeline is not None
        return f", {self._pipeline.rows():,} counted by Spark"

    def finish(self, seen: ClientsSeen) -> Findings:
        pipeline = self._pipeline
        assert pipeline is not None
        wanted, began = expected(seen), time.monotonic()
        complaints = []
        try:
            pipeline.wait(FINISH_S, lambda: pipeline.counts() == wanted, "Spark did not finish")
        except CliError as error:
            complaints.append(str(error))
        seconds = time.monotonic() - began
        found = pipeline.counts()
        if wrong := difference(found, wanted):
            complaints.append(f"Spark: {wrong}")
        if pipeline.restarts:
            complaints.append(f"Spark's driver was restarted {pipeline.restarts} times")
        rows = {
            "spark_counted": found.total(),
            "spark_windows": len(found),
            "spark_equals_what_was_written": "no" if wrong else "yes",
            "spark_driver_restarts": pipeline.restarts,
            "spark_seconds_behind": round(seconds, 1),
        }
        return Findings(rows, complaints)

    def stop(self) -> None:
        if self._pipeline is not None:
            self._pipeline.stop()
