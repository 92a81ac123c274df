"""Sources of a SparkPipeline: Kafka topics, a directory of files, or generated rows."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import ClusterRef, FreeForm, NonEmpty, Spec, TopicName
from odradek_api.pipeline.common import Count, Dedup, Kafka, Name, Watermark

TOPICS_MAX = 100


class Format(Spec, frozen=True, kw_only=True):
    """How the values of records, or files, are parsed into columns."""

    type: Annotated[
        Literal["raw", "text", "json", "csv", "avro", "parquet"],
        Meta(
            description="raw: Kafka's own columns (key, value, topic, partition, offset, "
            "timestamp, headers). text: one column named value. json, csv, avro, parquet: the "
            "columns of `schema`. Default: raw."
        ),
    ] = "raw"
    schema: Annotated[
        NonEmpty | None,
        Meta(
            description='Columns in SQL syntax, for example "page STRING NOT NULL, at TIMESTAMP", '
            "or an Avro schema as JSON. Required for json, csv, avro and parquet."
        ),
    ] = None
    options: Annotated[
        FreeForm,
        Meta(
            description='Spark\'s options of the format, for example {sep: ";"} for csv. Default: '
            "none."
        ),
    ] = field(default_factory=dict)


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
        Meta(max_length=TOPICS_MAX, description="Kafka topics to read, for example [visits]."),
    ] = field(default_factory=list)
    topic_pattern: Annotated[
        NonEmpty | None,
        Meta(
            description="Regular expression; topics whose whole name matches are read, for example "
            "visits-.*"
        ),
    ] = None
    files: Annotated[Files | None, Meta(description="Directory whose new files are read.")] = None
    rate: Annotated[Rate | None, Meta(description="Generated rows, for tests.")] = None
    cluster: Annotated[
        ClusterRef | None,
        Meta(description="KafkaCluster of the topics. Default: the pipeline's cluster."),
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
            "2026-11-16T12:00:00Z; without a time zone it is UTC."
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
