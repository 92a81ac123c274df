"""Small files in any file system that Spark can use: local, s3a:// or hdfs://."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class Store:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, path: str) -> str | None:
        fs, at = self._at(path)
        if not fs.exists(at):
            return None
        stream = fs.open(at)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        fs, at = self._at(path)
        stream = fs.create(at, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def names(self, path: str) -> list[str]:
        """Names in a directory; empty if it does not exist."""
        fs, at = self._at(path)
        if not fs.exists(at):
            return []
        return [str(one.getPath().getName()) for one in fs.listStatus(at)]

    @property
    def _jvm(self) -> Any:
        return self._spark.sparkContext._jvm

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._jvm.org.apache.hadoop.fs.Path(path)
        configuration = self._spark.sparkContext._jsc.hadoopConfiguration()
        return at.getFileSystem(configuration), at
