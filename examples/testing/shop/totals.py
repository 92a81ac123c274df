"""Sums amounts by customer: a batch job of PySpark over a topic."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from odradek_spark.session.jars import jars  # Spark's Kafka connector, fetched once


def totals(bootstrap: str) -> dict[str, int]:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, jars())))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    try:
        rows = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", "amounts")
            .load()
            .groupBy(f.col("key").cast("string").alias("customer"))
            .agg(f.sum(f.col("value").cast("string").cast("long")).alias("total"))
            .collect()
        )
        return {row["customer"]: row["total"] for row in rows}
    finally:
        spark.stop()
