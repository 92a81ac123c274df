"""A Delta table with one row for each key: each batch is one MERGE, a transaction of the table.

Of the rows of a key in a batch the last one counts, by sink.table.order (the offset in the topic).
The transaction carries the identity of the checkpoint and the number of the batch, and Delta skips
one that it has already: a repeated batch, or one of a driver that was paused and has a successor.
"""

from __future__ import annotations

from typing import Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from odradek_api.pipeline.job import Job, SpecError
from odradek_api.pipeline.outputs import Output
from odradek_spark.schemas import first_line

ORDER, DELETED = "__order", "__deleted"
BATCH = "odradek_batch"
TXN = "spark.databricks.delta.write"
CHANGE_FEED = "delta.enableChangeDataFeed"  # such a table can be a source with `changes`


class Names(Protocol):
    def names(self, path: str) -> list[str]: ...


class Upserts:
    """Called by foreachBatch, one batch after the other."""

    def __init__(self, job: Job, output: Output, identity: str) -> None:
        assert output.sink.table is not None
        self.rows_out = 0  # inserted, replaced and deleted by this driver
        self._table = output.sink.table
        self._path = job.path(self._table.path)
        self._identity = identity

    def create(self, files: Names, frame: DataFrame) -> None:
        """Creates the table with the columns of the frame, if there is none."""
        if files.names(f"{self._path}/_delta_log"):
            return
        columns = [field for field in frame.schema.fields if field.name not in (ORDER, DELETED)]
        empty = frame.sparkSession.createDataFrame([], StructType(columns))
        # CREATE TABLE IF NOT EXISTS takes a directory with the mark of jobs/guard.py for a table.
        writer = empty.write.format("delta").mode("append").option(CHANGE_FEED, "true")
        writer.partitionBy(*self._table.partition_by).save(self._path)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        spark = frame.sparkSession
        last_of(frame, self._table.key).createOrReplaceTempView(BATCH)
        spark.conf.set(f"{TXN}.txnAppId", self._identity)
        spark.conf.set(f"{TXN}.txnVersion", str(batch))
        columns = [name for name in frame.columns if name not in (ORDER, DELETED)]
        done = spark.sql(merge(self._path, self._table.key, columns)).collect()
        self.rows_out += int(done[0]["num_affected_rows"]) if done else 0


def merge(path: str, key: list[str], columns: list[str]) -> str:
    names = [_quoted(name) for name in columns]
    same = " AND ".join(f"t.{_quoted(name)} <=> b.{_quoted(name)}" for name in key)
    return (
        f"MERGE INTO delta.{_quoted(path)} t USING {BATCH} b ON {same} "
        f"WHEN MATCHED AND b.{DELETED} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = b.{name}' for name in names)} "
        f"WHEN NOT MATCHED AND NOT b.{DELETED} THEN INSERT ({', '.join(names)}) "
        f"VALUES ({', '.join(f'b.{name}' for name in names)})"
    )


def last_of(frame: DataFrame, key: list[str]) -> DataFrame:
    """The last row of each key."""
    newest = Window.partitionBy(*map(_quoted, key)).orderBy(f.col(ORDER).desc_nulls_last())
    numbered = frame.withColumn("__number", f.row_number().over(newest))
    return numbered.where("__number = 1").drop("__number")


def with_order(output: Output, frame: DataFrame, kept: list[str]) -> DataFrame:
    """The columns of the table, and two for the MERGE."""
    table = output.sink.table
    assert table is not None
    made: list[Any] = [_quoted(name) for name in kept]
    deleted = f"coalesce({table.delete_when or 'false'}, false)"
    for field, text, name in (("order", table.order, ORDER), ("deleteWhen", deleted, DELETED)):
        at = f"spec.{output.at}.table.{field}"
        try:
            frame.select(f.expr(text))
        except PySparkException as error:
            raise SpecError(at, f"{first_line(error)}; do the steps select it?") from None
        made.append(f.expr(text).alias(name))
    return frame.select(*made)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
