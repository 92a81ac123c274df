"""Lookups as DataFrames that Spark keeps in memory, and reads again when they are old.

    lookups = Lookups(spark, job)
    lookups.views()          # name → DataFrame, for the steps
    lookups.refresh(now_s)   # from time to time; what is old is read again by the next batch

A query that runs joins with the rows in Spark's cache. Dropping them from it and caching the same
DataFrame anew is what makes the next batch read them again; a batch that is running keeps the
offsets, files or version that it began with, but for rows of a database.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek_api.pipeline.common import seconds_of
from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.lookups import JdbcLookup, Lookup, TableLookup, TopicLookup
from odradek_spark.config import from_environment, spark_kafka_options
from odradek_spark.schemas import first_line
from odradek_spark.sources.options import FETCH_OFFSETS
from odradek_spark.sources.registered import decoded
from odradek_spark.transforms.parse import good_or_fail, parse


class Lookups:
    """Those of a job, for one session."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self._spark = spark
        self._job = job
        self._frames = {lookup.name: _read(spark, job, n, lookup)
                        for n, lookup in enumerate(job.spec.lookups)}  # fmt: skip
        self._read_at: dict[str, float] = {}  # of those that are kept in memory

    def views(self) -> dict[str, DataFrame]:
        return dict(self._frames)

    def refresh(self, now_s: float) -> None:
        """Keeps rows in memory, and drops those that are older than `refresh`."""
        for lookup in self._job.spec.lookups:
            before = self._read_at.get(lookup.name)
            if before is not None and now_s - before < seconds_of(lookup.refresh):
                continue
            frame = self._frames[lookup.name]
            if lookup.table is not None and lookup.table.format == "parquet" and before is not None:
                # Spark lists the files once; this lists those of cached tables again.
                self._spark.catalog.refreshByPath(self._job.path(lookup.table.path))
            frame.unpersist()
            frame.persist()
            self._read_at[lookup.name] = now_s

    def close(self) -> None:
        for name in self._read_at:
            self._frames[name].unpersist()
        self._read_at = {}


def _read(spark: SparkSession, job: Job, number: int, lookup: Lookup) -> DataFrame:
    at = f"lookups[{number}]"
    try:
        if lookup.topic is not None:
            return _topic(spark, job, at, lookup, lookup.topic)
        if lookup.table is not None:
            return _table(spark, job, lookup.table)
        assert lookup.jdbc is not None
        return _jdbc(spark, at, lookup.jdbc)
    except PySparkException as error:
        kind = "topic" if lookup.topic else "table" if lookup.table else "jdbc"
        raise SpecError(f"spec.{at}.{kind}", first_line(error)) from None


def _topic(spark: SparkSession, job: Job, at: str, lookup: Lookup, topic: TopicLookup) -> DataFrame:
    """The newest record of each key, parsed: older records need not fit the schema.

    Newest is the last one of a partition. If partitions were added to the topic, a key may be in
    two of them, and the time of the records decides.
    """
    options = spark_kafka_options(job, at, lookup.cluster, lookup.kafka, lookup.user)
    options |= {"subscribe": topic.name, "includeHeaders": "true", **FETCH_OFFSETS}
    records = spark.read.format("kafka").options(**options).load().drop("timestampType")
    names = [name for name in records.columns if name != "key"]
    newest = (
        records.where("key IS NOT NULL")
        .groupBy("key", "partition")
        .agg(f.max_by(f.struct(*names), "offset").alias("last"))
        .groupBy("key")
        .agg(f.max_by("last", "last.timestamp").alias("last"))
        .select("key", "last.*")
        .where("value IS NOT NULL")
    )
    if topic.format.type == "raw":
        return newest
    where = f"spec.{at}.topic.format"
    if topic.format.registry is not None:
        newest = decoded(where, newest, topic.format.registry)
    parsed = parse(where, newest, topic.format)
    if topic.format.type != "text":
        parsed = good_or_fail(parsed, f"lookup {lookup.name}: ")
    return parsed.withColumn("_key", f.col("_key").cast("string"))


def _table(spark: SparkSession, job: Job, table: TableLookup) -> DataFrame:
    return spark.read.format(table.format).load(job.path(table.path))


def _jdbc(spark: SparkSession, at: str, jdbc: JdbcLookup) -> DataFrame:
    options = {name: str(value) for name, value in jdbc.options.items()}
    given = {"url": jdbc.url, "dbtable": jdbc.table, "query": jdbc.query, "user": jdbc.user,
             "password": jdbc.password, "driver": jdbc.driver}  # fmt: skip
    for name, value in given.items():
        if value is not None:
            options[name] = from_environment(f"spec.{at}.jdbc.{name}", value)
    return spark.read.format("jdbc").options(**options).load()
