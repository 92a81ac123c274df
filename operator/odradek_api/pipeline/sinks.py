"""Sinks of a SparkPipeline: a topic, a table, a mirror or the console; and dead letters."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import ClusterRef, NonEmpty, Spec, TopicName
from odradek_api.pipeline.common import Kafka, Sql


class TopicSink(Spec, frozen=True, kw_only=True):
    """Writes each row as a record to a topic: at least once."""

    name: Annotated[TopicName, Meta(description="Kafka topic to write to.")]
    key: Annotated[
        Sql | None,
        Meta(description="SQL expression of the record key, for example page. Default: no key."),
    ] = None
    value: Annotated[
        Literal["json", "csv", "avro", "raw"],
        Meta(
            description="How the columns become the record value; raw writes the column named "
            "value unchanged. Default: json."
        ),
    ] = "json"
    schema: Annotated[
        NonEmpty | None, Meta(description="Avro schema as JSON. Required for value: avro.")
    ] = None
    id: Annotated[
        Sql | None,
        Meta(
            description="SQL expression written to the header odradek.id, by which readers can "
            "drop records that a repeated batch wrote twice. Default: no header."
        ),
    ] = None


class TableSink(Spec, frozen=True, kw_only=True):
    """Appends rows to a directory of Parquet files: exactly once."""

    path: Annotated[
        NonEmpty,
        Meta(
            description="The directory, for example /data/page-views or s3a://bucket/page-views. "
            "No other pipeline may write to it."
        ),
    ]
    partition_by: Annotated[
        list[NonEmpty],
        Meta(
            max_length=8,
            description="Columns that become subdirectories, for example [day]. Default: none.",
        ),
    ] = field(default_factory=list)


class MirrorSink(Spec, frozen=True, kw_only=True):
    """Copies records with their key, value, headers, timestamp and partition: at least once."""

    prefix: Annotated[
        str,
        Meta(
            max_length=100,
            description='Prefix of the target topics\' names, for example "eu." Default: none.',
        ),
    ] = ""
    create_topics: Annotated[
        bool,
        Meta(
            description="Create missing target topics with as many partitions as the source. "
            "Default: true."
        ),
    ] = True


class ConsoleSink(Spec, frozen=True, kw_only=True):
    """Prints each batch to the driver's output."""

    rows: Annotated[
        int, Meta(ge=1, le=10_000, description="Rows printed per batch, at most. Default: 20.")
    ] = 20


class Sink(Spec, frozen=True, kw_only=True):
    """Where results go: exactly one of topic, table, mirror and console."""

    topic: Annotated[
        TopicSink | None, Meta(description="Write each row as a record to a topic.")
    ] = None
    table: Annotated[
        TableSink | None, Meta(description="Append rows to a directory of Parquet files.")
    ] = None
    mirror: Annotated[
        MirrorSink | None, Meta(description="Copy records of raw sources to another cluster.")
    ] = None
    console: Annotated[
        ConsoleSink | None, Meta(description="Print each batch to the driver's output.")
    ] = None
    cluster: Annotated[
        ClusterRef | None,
        Meta(description="KafkaCluster of the topic or mirror. Default: the pipeline's cluster."),
    ] = None
    kafka: Annotated[
        Kafka,
        Meta(description="Addresses and client settings. Default: those of the pipeline."),
    ] = field(default_factory=Kafka)
    output_mode: Annotated[
        Literal["append", "update", "complete"],
        Meta(
            description="append writes the result of a window once, when the watermark has passed "
            "it; update writes it whenever it changes; complete writes all results in every "
            "batch. Default: append."
        ),
    ] = "append"


class DeadLetter(Spec, frozen=True, kw_only=True):
    """A topic for records that cannot be parsed, with the error in their headers."""

    topic: Annotated[
        TopicName, Meta(description="Kafka topic on the pipeline's cluster, for example dead.")
    ]
