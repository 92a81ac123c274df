"""Writes a DataFrame to its sink, as a streaming query or as a batch.

| sink    | after a crash                                                                        |
|---------|--------------------------------------------------------------------------------------|
| table   | exactly once: a batch's files count when the table's log (_spark_metadata) names them |
| topic   | at least once, idempotent producer: no gap; a batch may be written twice (`id`)       |
| mirror  | at least once, in order within each partition                                        |
| console | no guarantee                                                                         |
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from odradek_api.pipeline.job import Job, SpecError
from odradek_spark.config import librdkafka_config, spark_kafka_options
from odradek_spark.schemas import first_line
from odradek_spark.sinks.mirror import MirrorWriter
from odradek_spark.transforms.records import public, to_records

MAIN, DEAD_LETTER = "main", "dead-letter"


def start(job: Job, frame: DataFrame, checkpoint: str) -> StreamingQuery:
    """Starts the query to the job's sink."""
    writer = _streaming(job, _output(job, frame), MAIN, f"{checkpoint}/{MAIN}")
    sink = job.spec.sink
    writer = writer.outputMode(sink.output_mode)
    if sink.topic is not None:
        options = spark_kafka_options(job, "sink", sink.cluster, sink.kafka)
        writer = writer.format("kafka").options(**options).option("topic", sink.topic.name)
    elif sink.table is not None:
        writer = writer.format("parquet").option("path", job.path(sink.table.path))
        if sink.table.partition_by:
            writer = writer.partitionBy(*sink.table.partition_by)
    elif sink.mirror is not None:
        writer = writer.foreach(_mirror(job))
    else:
        assert sink.console is not None
        rows = sink.console.rows
        writer = writer.foreachBatch(lambda batch, _: batch.show(rows, False))
    try:
        return writer.start()
    except PySparkException as error:
        raise SpecError(_blame(job), first_line(error) + _advice(job, str(error))) from None


def _advice(job: Job, error: str) -> str:
    if "STREAMING_OUTPUT_MODE" not in error or "without watermark" not in error:
        return ""
    advice = (
        "; set a watermark of a time column (spec.sources[].watermark or spec.steps[].watermark) "
        "and group by a window of it"
    )
    if job.spec.sink.table is not None:  # which can only be appended to
        return advice
    return f"{advice}, or set spec.sink.outputMode to update or complete"


def start_dead_letters(job: Job, letters: DataFrame, checkpoint: str) -> StreamingQuery:
    """A separate query, so that dead letters are kept even while the main one waits or fails."""
    assert job.spec.dead_letter is not None
    options = spark_kafka_options(job, "deadLetter", None, job.spec.kafka)
    writer = _streaming(job, letters, DEAD_LETTER, f"{checkpoint}/{DEAD_LETTER}")
    writer = writer.format("kafka").options(**options).option("topic", job.spec.dead_letter.topic)
    return writer.start()


def write_batch(job: Job, frame: DataFrame) -> None:
    """mode: batch. The table must not exist: a second run would write its rows again."""
    sink = job.spec.sink
    frame = _output(job, frame)
    try:
        if sink.topic is not None:
            options = spark_kafka_options(job, "sink", sink.cluster, sink.kafka)
            frame.write.format("kafka").options(**options).option("topic", sink.topic.name).save()
        elif sink.table is not None:
            writer = frame.write.mode("errorifexists")
            if sink.table.partition_by:
                writer = writer.partitionBy(*sink.table.partition_by)
            writer.parquet(job.path(sink.table.path))
        elif sink.mirror is not None:
            mirror = _mirror(job)
            frame.foreachPartition(mirror.write_all)
        else:
            assert sink.console is not None
            frame.show(sink.console.rows, False)
    except PySparkException as error:
        raise SpecError(_blame(job), first_line(error)) from None


def write_dead_letters(job: Job, letters: DataFrame) -> None:
    assert job.spec.dead_letter is not None
    options = spark_kafka_options(job, "deadLetter", None, job.spec.kafka)
    topic = job.spec.dead_letter.topic
    letters.write.format("kafka").options(**options).option("topic", topic).save()


def _output(job: Job, frame: DataFrame) -> DataFrame:
    sink = job.spec.sink
    if sink.topic is not None:
        return to_records(frame, sink.topic)
    if sink.table is not None:
        for name in sink.table.partition_by:
            if name not in frame.columns:
                message = f"there is no column {name}, only {', '.join(frame.columns)}"
                raise SpecError("spec.sink.table.partitionBy", message)
        kept = [*public(frame), *(n for n in sink.table.partition_by if n.startswith("_"))]
        return frame.select(*(f"`{name}`" for name in kept))
    if sink.mirror is not None:  # milliseconds do not depend on the time zone
        return frame.withColumn("timestamp", f.unix_millis("timestamp"))
    return frame


def _streaming(job: Job, frame: DataFrame, name: str, checkpoint: str) -> Any:
    writer = frame.writeStream.queryName(name).option("checkpointLocation", checkpoint)
    if job.spec.mode == "availableNow":
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=job.spec.trigger or "0 seconds")


def _mirror(job: Job) -> MirrorWriter:
    sink = job.spec.sink
    assert sink.mirror is not None
    return MirrorWriter(
        librdkafka_config(job, "sink", sink.cluster, sink.kafka), sink.mirror.prefix
    )


def _blame(job: Job) -> str:
    """The field to blame if Spark refuses the whole query."""
    sink = job.spec.sink
    if sink.table is not None:
        return "spec.sink.table"
    return "spec.steps" if job.spec.steps else "spec.sink"
