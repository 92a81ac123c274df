"""Writes a DataFrame to its sink, as a streaming query or as a batch.

| sink    | after a crash                                                                        |
|---------|--------------------------------------------------------------------------------------|
| table   | exactly once: a batch's files count when the table's log (_spark_metadata, or Delta's) |
|         | names them; with a key each batch is one MERGE (upserts.py)                          |
| topic   | at least once, idempotent producer: no gap; a batch may be written twice (`id`);      |
|         | with delivery: exactlyOnce in transactions (batches.py)                              |
| mirror  | at least once, in order within each partition                                        |
| console | no guarantee                                                                         |
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaException
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from odradek_api.pipeline.job import Job, NotReadyError, SpecError
from odradek_api.pipeline.outputs import DEAD_LETTER, Output
from odradek_api.pipeline.sinks import TableSink
from odradek_spark.config import spark_kafka_options
from odradek_spark.schemas import first_line
from odradek_spark.sinks.batch_marks import TakenOverError, prefix
from odradek_spark.sinks.batches import (
    CheckpointFiles,
    ExactlyOnceSink,
    executors_config,
    writers_of,
)
from odradek_spark.sinks.mirror import MirrorWriter
from odradek_spark.sinks.registered import encoding
from odradek_spark.sinks.upserts import Upserts, with_order
from odradek_spark.transforms.records import public, to_records


class SinkError(Exception):
    """The sink cannot be written now; the driver may be started again."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(message)
        self.field = at


def exactly_once(output: Output) -> bool:
    topic = output.sink.topic
    return topic is not None and topic.delivery == "exactlyOnce"


def batch_sink(
    job: Job, output: Output, frame: DataFrame, files: CheckpointFiles, identity: str
) -> ExactlyOnceSink | Upserts | None:
    """The sink that is called with each batch, ready to write; None: Spark writes by itself."""
    if exactly_once(output):
        return claim_sink(job, output, frame, files, identity)
    table = output.sink.table
    if table is None or not table.key:
        return None
    upserts = Upserts(job, output, identity)
    upserts.create(files, written(output, frame))
    return upserts


def claim_sink(
    job: Job, output: Output, frame: DataFrame, files: CheckpointFiles, identity: str
) -> ExactlyOnceSink:
    """Takes the sink over from drivers that were started earlier."""
    sink = ExactlyOnceSink(job, files, output, identity)
    writers = writers_of(job, output, frame)
    try:
        sink.start(writers)
    except KafkaException as error:
        known = error.args[0].str() if error.args else str(error)
        message = f"the transactions of the sink cannot be opened: {known}"
        at = f"spec.{output.at}.topic"
        if rights := _rights(job, output, known):
            raise NotReadyError(at, message + rights) from None
        raise SinkError(at, message) from None  # a restart may help
    except TakenOverError as error:
        raise SinkError(f"spec.{output.at}.topic", str(error)) from None
    return sink


def _rights(job: Job, output: Output, error: str) -> str:
    """The entries of a KafkaUser's spec.acls that transactions need, if one is missing."""
    if "uthoriz" not in error:
        return ""
    name = prefix(job.namespace, job.name, output.query)
    entries = (
        f"{{resource: {{type: {kind}, name: {name}, pattern: prefix}}, operations: [{rights}]}}"
        for kind, rights in (("transactionalId", "write, describe"), ("group", "read"))
    )
    topic = output.sink.topic
    assert topic is not None
    return f"; it needs {' and '.join(entries)}, and read and write on topic {topic.name}"


def start(
    job: Job,
    output: Output,
    frame: DataFrame,
    batches: ExactlyOnceSink | Upserts | None = None,
) -> StreamingQuery:
    """Starts the query to a sink."""
    writer = _streaming(job, written(output, frame), output.query)
    sink = output.sink
    writer = writer.outputMode(sink.output_mode)
    if batches is not None:
        writer = writer.foreachBatch(batches)
    elif sink.topic is not None:
        options = spark_kafka_options(job, output.at, sink.cluster, sink.kafka, sink.user)
        writer = writer.format("kafka").options(**options).option("topic", sink.topic.name)
    elif sink.table is not None:
        writer = writer.format(sink.table.format).option("path", job.path(sink.table.path))
        if sink.table.partition_by:
            writer = writer.partitionBy(*sink.table.partition_by)
    elif sink.mirror is not None:
        writer = writer.foreach(_mirror(job, output))
    else:
        assert sink.console is not None
        rows = sink.console.rows
        writer = writer.foreachBatch(lambda batch, _: batch.show(rows, False))
    try:
        return writer.start()
    except PySparkException as error:
        message = first_line(error) + advice(output, str(error))
        raise SpecError(blame(job, output), message) from None


def advice(output: Output, error: str) -> str:
    if "STREAMING_OUTPUT_MODE" not in error or "without watermark" not in error:
        return ""
    advice = (
        "; set a watermark of a time column (spec.sources[].watermark or spec.steps[].watermark) "
        "and group by a window of it"
    )
    if output.sink.table is not None:  # which can only be appended to
        return advice
    return f"{advice}, or set spec.{output.at}.outputMode to update or complete"


def start_dead_letters(job: Job, letters: DataFrame) -> StreamingQuery:
    """A separate query, so that dead letters are kept even while the main one waits or fails."""
    assert job.spec.dead_letter is not None
    options = spark_kafka_options(job, "deadLetter", None, job.spec.kafka)
    writer = _streaming(job, letters, DEAD_LETTER)
    writer = writer.format("kafka").options(**options).option("topic", job.spec.dead_letter.topic)
    return writer.start()


def write_batch(job: Job, output: Output, frame: DataFrame) -> None:
    """mode: batch. The table must not exist: a second run would write its rows again."""
    sink = output.sink
    frame = written(output, frame)
    try:
        if sink.topic is not None:
            options = spark_kafka_options(job, output.at, sink.cluster, sink.kafka, sink.user)
            frame.write.format("kafka").options(**options).option("topic", sink.topic.name).save()
        elif sink.table is not None:
            writer = frame.write.mode("errorifexists")
            if sink.table.partition_by:
                writer = writer.partitionBy(*sink.table.partition_by)
            writer.format(sink.table.format).save(job.path(sink.table.path))
        elif sink.mirror is not None:
            mirror = _mirror(job, output)
            frame.foreachPartition(mirror.write_all)
        else:
            assert sink.console is not None
            frame.show(sink.console.rows, False)
    except PySparkException as error:
        raise SpecError(blame(job, output), first_line(error)) from None


def write_dead_letters(job: Job, letters: DataFrame) -> None:
    assert job.spec.dead_letter is not None
    options = spark_kafka_options(job, "deadLetter", None, job.spec.kafka)
    topic = job.spec.dead_letter.topic
    letters.write.format("kafka").options(**options).option("topic", topic).save()


def written(output: Output, frame: DataFrame) -> DataFrame:
    """The rows as the sink writes them."""
    at, sink = f"spec.{output.at}", output.sink
    if sink.topic is not None:
        return to_records(at, frame, sink.topic, encoding(at, sink.topic))
    if sink.table is not None:
        return _columns(output, sink.table, frame)
    if sink.mirror is not None:  # milliseconds do not depend on the time zone
        return frame.withColumn("timestamp", f.unix_millis("timestamp"))
    return frame


def _columns(output: Output, table: TableSink, frame: DataFrame) -> DataFrame:
    """Those that are written, although they begin with an underscore: parts and key."""
    for field, names in (("partitionBy", table.partition_by), ("key", table.key)):
        for name in names:
            if name not in frame.columns:
                message = f"there is no column {name}, only {', '.join(frame.columns)}"
                raise SpecError(f"spec.{output.at}.table.{field}", message)
    kept = public(frame)
    kept += [n for n in (*table.partition_by, *table.key) if n.startswith("_") and n not in kept]
    if table.key:
        return with_order(output, frame, kept)
    return frame.select(*(f"`{name}`" for name in kept))


def _streaming(job: Job, frame: DataFrame, name: str) -> Any:
    at = f"{job.checkpoint_location}/{name}"
    writer = frame.writeStream.queryName(name).option("checkpointLocation", at)
    if job.spec.mode == "availableNow":
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=job.spec.trigger or "0 seconds")


def _mirror(job: Job, output: Output) -> MirrorWriter:
    assert output.sink.mirror is not None
    config, directory = executors_config(job, output)
    return MirrorWriter(config, output.sink.mirror.prefix, directory)


def blame(job: Job, output: Output) -> str:
    """The field to blame if Spark refuses the whole query."""
    if output.sink.table is not None:
        return f"spec.{output.at}.table"
    return "spec.steps" if job.spec.steps else f"spec.{output.at}"
