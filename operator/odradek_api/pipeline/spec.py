"""The spec of a SparkPipeline: sources → steps → sink, and how it runs.

    apiVersion: odradek.dev/v1alpha1
    kind: SparkPipeline
    metadata: {name: page-views}
    spec:
      cluster: {name: main}
      sources:
        - name: visits
          topics: [visits]
          format: {type: json, schema: "page STRING NOT NULL, at TIMESTAMP NOT NULL"}
          watermark: {column: at, delay: 10 seconds}
      steps:
        - sql: SELECT page, window(at, '1 minute') AS minute, count(*) AS views
               FROM visits GROUP BY ALL
      deadLetter: {topic: visits-dead}
      sink: {topic: {name: page-views, key: page}}

In YAML the fields are camelCase. What a schema cannot say stands in rules.py. A union of shapes
(`topics` or `files`, `topic` or `table`) is several optional fields of which exactly one is given:
Kubernetes' structural schemas know no other.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

SOURCES_MAX = 8
STEPS_MAX = 32
TOPICS_MAX = 100

Name = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$", max_length=63)]  # a view's, in SQL
TopicName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]+$", max_length=249)]
Text = Annotated[str, Meta(min_length=1)]
Sql = Annotated[str, Meta(min_length=1, max_length=65536)]
Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Duration = Annotated[
    str, Meta(pattern=r"^[0-9]+ (milliseconds?|seconds?|minutes?|hours?|days?)$", max_length=40)
]
_KEEP = {"x-kubernetes-preserve-unknown-fields": True}
FreeForm = Annotated[dict[str, Any], Meta(extra_json_schema=_KEEP)]


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all parts: a field that is not known is refused by its name."""


class ClusterRef(Part, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=253)]
    namespace: Annotated[str, Meta(min_length=1, max_length=63)] | None = None


class Kafka(Part, frozen=True, kw_only=True):
    """A cluster that no KafkaCluster of ours describes, or client settings for one that does."""

    bootstrap_servers: Annotated[
        Text | None, Meta(description="Left out: those of the cluster that is named.")
    ] = None
    config: Annotated[FreeForm, Meta(description="Settings of Kafka's clients.")] = field(
        default_factory=dict
    )


# -- sources ---------------------------------------------------------------------------------------


class Format(Part, frozen=True, kw_only=True):
    type: Annotated[
        Literal["raw", "text", "json", "csv", "avro", "parquet"],
        Meta(description="How values are read. raw: Kafka's own columns; text: one column, value."),
    ] = "raw"
    schema: Annotated[
        Text | None,
        Meta(description="Columns as in SQL (json, csv, parquet), or an Avro schema as JSON."),
    ] = None
    options: Annotated[
        FreeForm, Meta(description="Spark's options of the format: sep, timestampFormat, …")
    ] = field(default_factory=dict)


class Files(Part, frozen=True, kw_only=True):
    path: Annotated[Text, Meta(description="A directory; files that appear in it are read once.")]
    pattern: Annotated[Text | None, Meta(description="Only files named so: *.log")] = None
    recursive: bool = False
    max_files_per_trigger: Annotated[int, Meta(ge=1)] | None = None
    latest_first: bool = False


class Rate(Part, frozen=True, kw_only=True):
    rows_per_second: Annotated[int, Meta(ge=1, le=10_000_000)] = 1


class Watermark(Part, frozen=True, kw_only=True):
    column: Text
    delay: Annotated[Duration, Meta(description="How late a record may be.")]


class Dedup(Part, frozen=True, kw_only=True):
    by: Annotated[list[Text], Meta(min_length=1, max_length=32)]


class Source(Part, frozen=True, kw_only=True):
    name: Annotated[Name, Meta(description="The view that SQL reads.")] = "source"
    topics: Annotated[list[TopicName], Meta(max_length=TOPICS_MAX)] = field(default_factory=list)
    topic_pattern: Annotated[Text | None, Meta(description="All topics whose name matches.")] = None
    files: Files | None = None
    rate: Rate | None = None
    cluster: Annotated[ClusterRef | None, Meta(description="Left out: the pipeline's.")] = None
    kafka: Kafka = field(default_factory=Kafka)
    format: Format = field(default_factory=Format)
    from_: Annotated[
        Literal["earliest", "latest", "offsets", "timestamp"],
        Meta(description="Where a pipeline without a checkpoint begins."),
    ] = field(name="from", default="earliest")
    offsets: Annotated[
        FreeForm, Meta(description='With from: offsets. {"visits": {"0": 4711}}; -2: earliest.')
    ] = field(default_factory=dict)
    timestamp: Annotated[
        Text | None, Meta(description="With from: timestamp. 2026-11-16T12:00:00Z")
    ] = None
    until: Annotated[FreeForm, Meta(description="mode: batch reads up to these offsets.")] = field(
        default_factory=dict
    )
    max_offsets_per_trigger: Annotated[
        Count | None, Meta(description="Records of one batch, over all partitions.")
    ] = None
    fail_on_data_loss: Annotated[
        bool, Meta(description="Stop when offsets are gone before they were read.")
    ] = True
    watermark: Watermark | None = None
    dedup: Annotated[
        Dedup | None, Meta(description="One record of each key within the watermark.")
    ] = None

    @property
    def kafka_source(self) -> bool:
        return bool(self.topics or self.topic_pattern)


# -- steps -----------------------------------------------------------------------------------------


class Step(Part, frozen=True, kw_only=True):
    """SQL over the views so far, or a function of DataFrames; its result is a view by `name`."""

    name: Annotated[Name | None, Meta(description="Left out: step_1, step_2, …")] = None
    sql: Sql | None = None
    python: Annotated[
        Text | None, Meta(description="A file beside the manifest, with functions of DataFrames.")
    ] = None
    code: Annotated[Sql | None, Meta(description="The same, written here.")] = None
    function: Annotated[Text, Meta(description="Its name in the file.")] = "transform"
    inputs: Annotated[
        list[Name], Meta(description="Views it is called with; left out: the one before.")
    ] = field(default_factory=list)
    watermark: Watermark | None = None
    dedup: Dedup | None = None


# -- sinks -----------------------------------------------------------------------------------------


class TopicSink(Part, frozen=True, kw_only=True):
    name: TopicName
    key: Annotated[Sql | None, Meta(description="An SQL expression; left out: no key.")] = None
    value: Annotated[
        Literal["json", "csv", "avro", "raw"],
        Meta(description="How the columns become a value. raw: the column value, as it is."),
    ] = "json"
    schema: Annotated[Text | None, Meta(description="With value: avro.")] = None
    id: Annotated[
        Sql | None,
        Meta(description="An SQL expression, put into the header odradek.id: readers drop by it "
             "what a repeated batch wrote twice."),
    ] = None  # fmt: skip


class TableSink(Part, frozen=True, kw_only=True):
    path: Annotated[Text, Meta(description="A directory of Parquet files, this pipeline's only.")]
    partition_by: Annotated[list[Text], Meta(max_length=8)] = field(default_factory=list)


class MirrorSink(Part, frozen=True, kw_only=True):
    """Keys, values, headers, timestamps and partitions of raw sources, as they are."""

    prefix: Annotated[str, Meta(max_length=100, description="Put before the topics' names.")] = ""
    create_topics: Annotated[
        bool, Meta(description="Make those that are missing, with as many partitions.")
    ] = True


class ConsoleSink(Part, frozen=True, kw_only=True):
    rows: Annotated[int, Meta(ge=1, le=10_000)] = 20


class Sink(Part, frozen=True, kw_only=True):
    topic: TopicSink | None = None
    table: TableSink | None = None
    mirror: MirrorSink | None = None
    console: ConsoleSink | None = None
    cluster: Annotated[ClusterRef | None, Meta(description="Left out: the pipeline's.")] = None
    kafka: Kafka = field(default_factory=Kafka)
    output_mode: Annotated[
        Literal["append", "update", "complete"],
        Meta(description="append: a window once, when it is over; update: whenever it changes."),
    ] = "append"


class DeadLetter(Part, frozen=True, kw_only=True):
    topic: Annotated[TopicName, Meta(description="On the pipeline's cluster.")]


# -- how it runs -----------------------------------------------------------------------------------


class RestartPolicy(Part, frozen=True, kw_only=True):
    """As a SparkApplication's."""

    type: Literal["Never", "OnFailure", "Always"] = "OnFailure"
    retries: Annotated[
        Natural | None, Meta(description="In a row, without a batch in between. Left out: no end.")
    ] = None
    interval_seconds: Annotated[int, Meta(ge=1, le=3600)] = 10


class Pod(Part, frozen=True, kw_only=True):
    cores: Annotated[int, Meta(ge=1, le=256)] = 1
    memory: Annotated[
        str, Meta(pattern=r"^[0-9]+(k|m|g|t)$", description="Of the JVM, as Spark writes it: 512m")
    ] = "1g"
    memory_overhead: Annotated[str, Meta(pattern=r"^[0-9]+(k|m|g|t)$")] | None = None
    core_request: Annotated[
        Text | None, Meta(description="As Kubernetes writes it, 500m; left out: cores.")
    ] = None
    core_limit: Text | None = None
    labels: FreeForm = field(default_factory=dict)
    annotations: FreeForm = field(default_factory=dict)
    node_selector: FreeForm = field(default_factory=dict)
    tolerations: Annotated[list[FreeForm], Meta(max_length=50)] = field(default_factory=list)
    env: Annotated[list[FreeForm], Meta(max_length=100)] = field(default_factory=list)


class Executors(Pod, frozen=True, kw_only=True):
    instances: Annotated[int, Meta(ge=1, le=10_000)] = 1


class DynamicAllocation(Part, frozen=True, kw_only=True):
    enabled: bool = False
    initial_executors: Annotated[int, Meta(ge=0)] | None = None
    min_executors: Annotated[int, Meta(ge=0)] | None = None
    max_executors: Annotated[int, Meta(ge=1)] | None = None


class Kubernetes(Part, frozen=True, kw_only=True):
    """What only matters there."""

    image: Text | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[list[Text], Meta(max_length=20)] = field(default_factory=list)
    driver: Pod = field(default_factory=Pod)
    executor: Executors = field(default_factory=Executors)
    dynamic_allocation: DynamicAllocation = field(default_factory=DynamicAllocation)
    volume_claim: Annotated[
        Text | None, Meta(description="A PersistentVolumeClaim for checkpoint and tables, at /data")
    ] = None
    files: Annotated[
        Text | None, Meta(description="A ConfigMap with the Python files of the steps.")
    ] = None
    service_account: Text | None = None
    time_to_live_seconds: Annotated[int, Meta(ge=0)] | None = None


class SparkPipelineSpec(Part, frozen=True, kw_only=True):
    cluster: Annotated[
        ClusterRef | None, Meta(description="The KafkaCluster of sources and sink.")
    ] = None
    kafka: Kafka = field(default_factory=Kafka)
    sources: Annotated[list[Source], Meta(min_length=1, max_length=SOURCES_MAX)]
    steps: Annotated[list[Step], Meta(max_length=STEPS_MAX)] = field(default_factory=list)
    sink: Sink
    dead_letter: Annotated[
        DeadLetter | None,
        Meta(description="For records that do not parse; left out: the first one stops it."),
    ] = None
    mode: Annotated[
        Literal["streaming", "availableNow", "batch"],
        Meta(description="availableNow: what is there, then end, with a checkpoint; batch: none."),
    ] = "streaming"
    trigger: Annotated[
        Duration | None, Meta(description="A batch that often; left out: one after the other.")
    ] = None
    schedule: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)] | None,
        Meta(description="When it runs, as cron says it, in UTC: 0 2 * * *; not with streaming."),
    ] = None
    checkpoint: Annotated[
        Text | None,
        Meta(description="A directory; left out: one of the pipeline's own. New: begin anew."),
    ] = None
    restart_policy: RestartPolicy = field(default_factory=RestartPolicy)
    spark_conf: Annotated[FreeForm, Meta(description="Any setting of Spark's.")] = field(
        default_factory=dict
    )
    suspend: bool = False
    kubernetes: Kubernetes = field(default_factory=Kubernetes)
