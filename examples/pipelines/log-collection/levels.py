"""A step in Python: any function of DataFrames, plain PySpark."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

SEVERITY = {"DEBUG": 7, "INFO": 6, "WARN": 4, "ERROR": 3}


def with_severity(lines: DataFrame) -> DataFrame:
    """Syslog's number for each level; the file's own name instead of its whole path."""
    known = f.create_map(*(f.lit(x) for pair in SEVERITY.items() for x in pair))
    return lines.select(
        "at",
        "host",
        "message",
        f.coalesce(known[f.col("level")], f.lit(6)).alias("severity"),
        f.element_at(f.split("_file", "/"), -1).alias("file"),
    )
