"""Sources of a SparkPipeline: Kafka topics, a directory of files, a table, or generated rows."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import ClusterRef, FreeForm, NonEmpty, Spec, TopicName
from odradek_api.pipeline.common import Count, Dedup, Kafka, Name, UserRef, Watermark
from odradek_api.pipeline.schema_registry import SchemaRegistry

TOPICS_MAX = 100


class Format(Spec, frozen=True, kw_only=True):
    """How the values of records, or files, are parsed into columns."""

    type: Annotated[
        Literal["raw", "text", "json", "csv", "avro", "protobuf", "parquet"],
        Meta(
            description="raw: Kafka's own columns (key, value, topic, partition, offset, "
            "timestamp, headers). text: one column named value. json, csv, avro, protobuf, "
            "parquet: the columns of `schema`. Default: raw."
        ),
    ] = "raw"
    schema: Annotated[
        NonEmpty | None,
        Meta(
            description='Columns in SQL syntax, for example "page STRING NOT NULL, at TIMESTAMP", '
            "or an Avro schema as JSON. Required for json, csv, avro, protobuf and parquet. With a "
            "registry: columns. Default: none."
        ),
    ] = None
    registry: Annotated[
        SchemaRegistry | None,
        Meta(
            description="For json, avro and protobuf: each record names its schema in this "
            "registry, and `schema` has the columns that are taken from it. Default: records "
            "have no such header."
        ),
    ] = None
    options: Annotated[
        FreeForm,
        Meta(
            description='Spark\'s options of the format, for example {sep: ";"} for csv. Default: '
            "none."
        ),
    ] = field(default_factory=dict)


class Table(Spec, frozen=True, kw_only=True):
    """A table of Delta Lake."""

    path: Annotated[
        NonEmpty,
        Meta(description="Its directory, for example /data/orders or s3a://bucket/orders."),
    ]
    changes: Annotated[
        bool,
        Meta(
            description="Read the table's change feed, with the columns _change_type, "
            "_commit_version and _commit_timestamp; a table that a pipeline writes with `key` has "
            "one. Default: false; rows that are appended are read, and a changed row is an error."
        ),
    ] = False


class Files(Spec, frozen=True, kw_only=True):
    """A directory whose new files are read, each one once."""

    path: Annotated[
        NonEmpty,
        Meta(description="The directory, for example /data/incoming or s3a://bucket/incoming."),
    ]
    pattern: Annotated[
        NonEmpty | None,
        Meta(description="Read only files whose name matches, for example *.log. Default: all."),
    ] = None
    recursive: Annotated[bool, Meta(description="Read subdirectories too. Default: false.")] = False
    max_files_per_trigger: Annotated[
        Count | None, Meta(description="Files per batch, at most. Default: no limit.")
    ] = None
    latest_first: Annotated[
        bool, Meta(description="Read the newest files first. Default: false.")
    ] = False


class Rate(Spec, frozen=True, kw_only=True):
    """Generated rows, for tests: the columns are timestamp and value."""

    rows_per_second: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Rows generated per second. Default: 1.")
    ] = 1


class Source(Spec, frozen=True, kw_only=True):
    """Where records come from: exactly one of topics, topicPattern, files and rate."""

    name: Annotated[
        Name,
        Meta(description="Name of the view that steps read in SQL. Default: source."),
    ] = "source"
    topics: Annotated[
        list[TopicName],
        Meta(
            max_length=TOPICS_MAX,
            description="Kafka topics to read, for example [visits]. A source has exactly one of "
            "topics, topicPattern, files and rate.",
        ),
    ] = field(default_factory=list)
    topic_pattern: Annotated[
        NonEmpty | None,
        Meta(
            description="Regular expression; topics whose whole name matches are read, for "
            'example "visits-.*". Default: the source has topics, files or rate.'
        ),
    ] = None
    files: Annotated[
        Files | None,
        Meta(
            description="Directory whose new files are read. Default: the source has topics, "
            "topicPattern or rate."
        ),
    ] = None
    rate: Annotated[
        Rate | None,
        Meta(
            description="Generated rows, for tests. Default: the source has topics, topicPattern "
            "or files."
        ),
    ] = None
    table: Annotated[
        Table | None,
        Meta(
            description="A table of Delta Lake. Default: the source is topics, topicPattern, files "
            "or rate."
        ),
    ] = None
    tombstones: Annotated[
        bool,
        Meta(
            description="Of topics in json, csv, avro or protobuf: a record without a value is a "
            "row with _key and _deleted = true. Default: false; it does not parse."
        ),
    ] = False
    cluster: Annotated[
        ClusterRef | None,
        Meta(description="KafkaCluster of the topics. Default: the pipeline's cluster."),
    ] = None
    user: Annotated[
        UserRef | None,
        Meta(
            description="KafkaUser of this source, for a cluster that differs from the pipeline's, "
            "for example of a mirror. Default: the pipeline's."
        ),
    ] = None
    kafka: Annotated[
        Kafka,
        Meta(description="Addresses and client settings. Default: those of the pipeline."),
    ] = field(default_factory=Kafka)
    format: Annotated[
        Format, Meta(description="How values are parsed into columns. Default: raw.")
    ] = field(default_factory=Format)
    from_: Annotated[
        Literal["earliest", "latest", "offsets", "timestamp"],
        Meta(
            description="Where a pipeline that has no checkpoint yet starts to read. Default: "
            "earliest."
        ),
    ] = field(name="from", default="earliest")
    offsets: Annotated[
        FreeForm,
        Meta(
            description="With from: offsets. First offset of each partition by topic, for example "
            '{visits: {"0": 4711}}; -2 is the earliest, -1 the latest. Default: none.'
        ),
    ] = field(default_factory=dict)
    timestamp: Annotated[
        NonEmpty | None,
        Meta(
            description="With from: timestamp. Records from this time on are read, for example "
            "2026-11-16T12:00:00Z; without a time zone it is UTC. Default: none."
        ),
    ] = None
    until: Annotated[
        FreeForm,
        Meta(
            description="With mode: batch. Offsets where reading ends, by topic and partition as "
            "in `offsets`. Default: the end of each partition when the batch starts."
        ),
    ] = field(default_factory=dict)
    max_offsets_per_trigger: Annotated[
        Count | None,
        Meta(description="Records per batch over all partitions, at most. Default: no limit."),
    ] = None
    fail_on_data_loss: Annotated[
        bool,
        Meta(
            description="Fail when records were deleted from the topic before they were read. "
            "Default: true."
        ),
    ] = True
    watermark: Annotated[
        Watermark | None,
        Meta(description="How long results wait for late records. Default: no watermark."),
    ] = None
    dedup: Annotated[
        Dedup | None,
        Meta(
            description="Keep one record of each key within the watermark. Default: keep all "
            "records."
        ),
    ] = None

    @property
    def kafka_source(self) -> bool:
        return bool(self.topics or self.topic_pattern)
