"""Builds the DataFrames of a job: sources, parsing, dead letters and steps."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.outputs import Output, outputs
from odradek_spark.sources.lookups import Lookups
from odradek_spark.sources.metadata import lookup_topics, sink_topics, source_partitions
from odradek_spark.sources.read import read
from odradek_spark.transforms.parse import REASON, bad, good, good_or_fail
from odradek_spark.transforms.records import dead_letters
from odradek_spark.transforms.steps import run_steps, watermark_and_dedup

Partitions = list[dict[str, int]]  # of each source: topic → partitions


def check_topics(job: Job) -> Partitions:
    """Checks the topics before Spark starts, because this is faster and names the field."""
    partitions = [source_partitions(job, n) for n in range(len(job.spec.sources))]
    lookup_topics(job)
    sink_topics(job, partitions)
    return partitions


class Built(NamedTuple):
    """The rows for each sink, and those for the dead-letter topic if the job has one."""

    frames: list[tuple[Output, DataFrame]]
    letters: DataFrame | None
    lookups: Lookups


def build(spark: SparkSession, job: Job, partitions: Partitions, limit: int | None = None) -> Built:
    """`limit`: records of each source in the first batch (sources/pacing.py)."""
    views: dict[str, DataFrame] = {}
    letters: list[DataFrame] = []
    for number, source in enumerate(job.spec.sources):
        frame = read(spark, job, number, partitions[number], limit)
        if REASON in frame.columns:
            if job.spec.dead_letter is not None:
                letters.append(dead_letters(bad(frame), job.key))
                frame = good(frame)
            else:
                frame = good_or_fail(frame)
        at = f"spec.sources[{number}]"
        views[source.name] = watermark_and_dedup(at, frame, source.watermark, source.dedup)
    lookups = Lookups(spark, job)
    views |= lookups.views()
    last = run_steps(spark, job.spec.steps, views, Path(job.directory))
    frames = [(o, spark.table(o.view) if o.view else last) for o in outputs(job.spec)]
    for output, frame in frames:
        if job.spec.mode != "batch" and not frame.isStreaming:
            at = f"spec.{output.at}.from" if output.view else "spec.steps"
            raise SpecError(at, "the rows of this sink are made of lookups only: read a source too")
    return Built(frames, reduce(DataFrame.unionByName, letters) if letters else None, lookups)
