"""Sinks of a SparkPipeline: a topic, a table, a mirror or the console; and dead letters.

A pipeline has one `sink`, or several `sinks` with names; outputs.py is the common view of both.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import ClusterRef, NonEmpty, Spec, TopicName
from odradek_api.pipeline.common import Kafka, Name, Sql, UserRef
from odradek_api.pipeline.schema_registry import SchemaRegistry


class TopicSink(Spec, frozen=True, kw_only=True):
    """Writes each row as a record to a topic: at least once, or exactly once."""

    name: Annotated[TopicName, Meta(description="Kafka topic to write to.")]
    key: Annotated[
        Sql | None,
        Meta(description="SQL expression of the record key, for example page. Default: no key."),
    ] = None
    value: Annotated[
        Literal["json", "csv", "avro", "protobuf", "raw"],
        Meta(
            description="How the columns become the record value; raw writes the column named "
            "value unchanged. Default: json."
        ),
    ] = "json"
    schema: Annotated[
        NonEmpty | None,
        Meta(
            description="Avro schema as JSON. Required for value: avro without a registry. "
            "Default: none."
        ),
    ] = None
    registry: Annotated[
        SchemaRegistry | None,
        Meta(
            description="For json, avro and protobuf: values are written with the newest schema "
            "of `subject` when the pipeline starts, and name it. Default: no registry."
        ),
    ] = None
    subject: Annotated[
        NonEmpty | None,
        Meta(
            description="With a registry: the subject of the schema. Default: the topic's name "
            "and -value."
        ),
    ] = None
    id: Annotated[
        Sql | None,
        Meta(
            description="SQL expression written to the header odradek.id, by which readers can "
            "drop records that a repeated batch wrote twice. Default: no header."
        ),
    ] = None
    delivery: Annotated[
        Literal["atLeastOnce", "exactlyOnce"],
        Meta(
            description="atLeastOnce: after a crash a batch may be written twice. exactlyOnce: "
            "batches are written in Kafka transactions; consumers with isolation.level "
            "read_committed see each record once. Default: atLeastOnce."
        ),
    ] = "atLeastOnce"
    writers: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        Meta(
            description="With delivery: exactlyOnce. Parallel transactions per batch; with 1, a "
            "batch becomes visible as a whole. Default: 4, or 1 if the rows of a repeated batch "
            "may differ."
        ),
    ] = None


class TableSink(Spec, frozen=True, kw_only=True):
    """Appends rows to a table, exactly once; or keeps one row of each key in a Delta table."""

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
    format: Annotated[
        Literal["parquet", "delta"],
        Meta(description="Parquet files, or a table of Delta Lake. Default: parquet."),
    ] = "parquet"
    key: Annotated[
        list[NonEmpty],
        Meta(
            max_length=8,
            description="With format: delta. Columns of the key: a row replaces the row with its "
            "key (MERGE), for example [id]. Default: none; rows are appended.",
        ),
    ] = field(default_factory=list)
    delete_when: Annotated[
        Sql | None,
        Meta(
            description="With key. SQL expression of the rows that delete the row with their key, "
            "for example _deleted. Default: none."
        ),
    ] = None
    order: Annotated[
        Sql,
        Meta(
            description="With key. SQL expression by which the last row of a key in a batch is "
            "found. Default: _offset."
        ),
    ] = "_offset"


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
        TopicSink | None,
        Meta(
            description="Write each row as a record to a topic. Default: the sink is a table, "
            "mirror or console."
        ),
    ] = None
    table: Annotated[
        TableSink | None,
        Meta(
            description="Write rows to a table: Parquet files, or Delta Lake. Default: the sink is "
            "a topic, mirror or console."
        ),
    ] = None
    mirror: Annotated[
        MirrorSink | None,
        Meta(
            description="Copy records of raw sources to another cluster. Default: the sink is a "
            "topic, table or console."
        ),
    ] = None
    console: Annotated[
        ConsoleSink | None,
        Meta(
            description="Print each batch to the driver's output. Default: the sink is a topic, "
            "table or mirror."
        ),
    ] = None
    cluster: Annotated[
        ClusterRef | None,
        Meta(description="KafkaCluster of the topic or mirror. Default: the pipeline's cluster."),
    ] = None
    user: Annotated[
        UserRef | None,
        Meta(
            description="KafkaUser of this sink, for a cluster that differs from the pipeline's, "
            "for example of a mirror. Default: the pipeline's."
        ),
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


class NamedSink(Sink, frozen=True, kw_only=True):
    """One of several sinks: a sink, its name, and the view that goes to it."""

    name: Annotated[
        Name,
        Meta(
            description="Name of the sink, of its query and of its checkpoint. main continues the "
            "checkpoint of a pipeline that had one sink. Another name starts from the beginning."
        ),
    ]
    from_: Annotated[
        Name | None,
        Meta(
            description="View of a source or step that goes to this sink. Default: the result of "
            "the last step."
        ),
    ] = field(name="from", default=None)


class DeadLetter(Spec, frozen=True, kw_only=True):
    """A topic for records that cannot be parsed, with the error in their headers."""

    topic: Annotated[
        TopicName, Meta(description="Kafka topic on the pipeline's cluster, for example dead.")
    ]
