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

In YAML the fields are camelCase. Rules that a schema cannot express are in rules.py. A union
(`topics` or `files`, `topic` or `table`) is several optional fields of which exactly one is given,
because Kubernetes' structural schemas have no unions. Its parts are in
sources.py, sinks.py, common.py and pods.py.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import ClusterRef, FreeForm, NonEmpty, Spec
from odradek_api.pipeline.common import (
    Dedup,
    Duration,
    Kafka,
    Name,
    Natural,
    Sql,
    UserRef,
    Watermark,
)
from odradek_api.pipeline.declarative import DeclarativeProject
from odradek_api.pipeline.lookups import Lookup
from odradek_api.pipeline.pods import Kubernetes
from odradek_api.pipeline.samples import SampleTest
from odradek_api.pipeline.sinks import DeadLetter, NamedSink, Sink
from odradek_api.pipeline.sources import Source

SOURCES_MAX = 8
STEPS_MAX = 32
LOOKUPS_MAX = 8
SINKS_MAX = 8  # each is a streaming query of its own, with its own read of the sources


class Step(Spec, frozen=True, kw_only=True):
    """SQL over the views so far, or a Python function of DataFrames. Its result is a view."""

    name: Annotated[
        Name | None,
        Meta(description="Name of the resulting view. Default: step_1, step_2, …"),
    ] = None
    sql: Annotated[
        Sql | None,
        Meta(
            description="A SELECT over the views of sources and earlier steps, for example SELECT "
            "page FROM source. Default: the step has python or code, or only a watermark or dedup."
        ),
    ] = None
    python: Annotated[
        NonEmpty | None,
        Meta(
            description="Python file with functions of DataFrames, relative to the manifest, for "
            "example steps.py. Default: the step has sql or code."
        ),
    ] = None
    code: Annotated[
        Sql | None,
        Meta(
            description="Python source with functions of DataFrames, instead of a file. Default: "
            "the step has sql or python."
        ),
    ] = None
    function: Annotated[
        NonEmpty,
        Meta(description="Function to call in `python` or `code`. Default: transform."),
    ] = "transform"
    inputs: Annotated[
        list[Name],
        Meta(
            description="Views that the function is called with, in this order. Default: the "
            "result of the previous step, or the first source."
        ),
    ] = field(default_factory=list)
    watermark: Annotated[
        Watermark | None,
        Meta(description="Watermark of the result. Default: none."),
    ] = None
    dedup: Annotated[
        Dedup | None,
        Meta(description="Deduplication of the result. Default: none."),
    ] = None


class RestartPolicy(Spec, frozen=True, kw_only=True):
    """When the driver is started again after it ended."""

    type: Annotated[
        Literal["Never", "OnFailure", "Always"],
        Meta(
            description="Never, OnFailure, or Always (also after it completed). A driver that "
            "refuses the spec is not started again. Default: OnFailure."
        ),
    ] = "OnFailure"
    retries: Annotated[
        Natural | None,
        Meta(
            description="Restarts in a row without a completed batch in between, at most. Default: "
            "no limit."
        ),
    ] = None
    interval_seconds: Annotated[
        int, Meta(ge=1, le=3600, description="Seconds before a restart. Default: 10.")
    ] = 10


class SparkPipelineSpec(Spec, frozen=True, kw_only=True):
    """The desired state of the pipeline."""

    cluster: Annotated[
        ClusterRef | None,
        Meta(
            description="KafkaCluster of sources, sink and dead letters. Default: none; then "
            "kafka.bootstrapServers is required."
        ),
    ] = None
    user: Annotated[
        UserRef | None,
        Meta(
            description="KafkaUser that driver and executors log in as, with the credentials of "
            "its Secret, which must be in the pipeline's namespace and contain client.properties "
            "and librdkafka.conf. Default: none; they are anonymous."
        ),
    ] = None
    kafka: Annotated[
        Kafka,
        Meta(
            description="Addresses and client settings of sources and sink that do not set their "
            "own. Default: those of `cluster`."
        ),
    ] = field(default_factory=Kafka)
    sources: Annotated[
        list[Source],
        Meta(
            max_length=SOURCES_MAX,
            description="Where records come from. Default: none; required without sdp.",
        ),
    ] = field(default_factory=list)
    lookups: Annotated[
        list[Lookup],
        Meta(
            max_length=LOOKUPS_MAX,
            description="Views that steps join with: the newest records of a topic, a table, or "
            "rows of a database. They start no batch. Default: none.",
        ),
    ] = field(default_factory=list)
    steps: Annotated[
        list[Step],
        Meta(
            max_length=STEPS_MAX,
            description="Transformations, run in this order; the last result goes to the sink. "
            "Default: none; the source goes to the sink.",
        ),
    ] = field(default_factory=list)
    sink: Annotated[
        Sink,
        Meta(description="Where results go. Default: none; required without sinks and sdp."),
    ] = field(default_factory=Sink)
    sinks: Annotated[
        list[NamedSink],
        Meta(
            max_length=SINKS_MAX,
            description="Several sinks, instead of sink. Each is written by a query of its own, "
            "which reads the sources by itself. Default: none.",
        ),
    ] = field(default_factory=list)
    sdp: Annotated[
        DeclarativeProject | None,
        Meta(
            description="A project of Spark Declarative Pipelines (spark-pipelines), instead of "
            "sources, lookups, steps, sinks and deadLetter. Default: none."
        ),
    ] = None
    dead_letter: Annotated[
        DeadLetter | None,
        Meta(
            description="Topic for records that cannot be parsed. Default: none; the first such "
            "record fails the pipeline."
        ),
    ] = None
    mode: Annotated[
        Literal["streaming", "availableNow", "batch"],
        Meta(
            description="streaming runs until it is stopped. availableNow processes what is there "
            "and ends; the next run continues from its checkpoint. batch does the same without a "
            "checkpoint, and not with sdp. Default: streaming."
        ),
    ] = "streaming"
    trigger: Annotated[
        Duration | None,
        Meta(
            description="With mode: streaming. Interval between the starts of batches (with sdp: "
            "of updates), for example 10 seconds. Default: each batch starts when the previous one "
            "has ended; with sdp 1 minute."
        ),
    ] = None
    batch_target: Annotated[
        Duration | None,
        Meta(
            description="How long a batch should take, for example 10 seconds: the records that it "
            "reads of each topic source are adapted to it, up to maxOffsetsPerTrigger. Default: "
            "batches are not adapted."
        ),
    ] = None
    consumer_group: Annotated[
        Annotated[str, Meta(min_length=1, max_length=249)] | None,
        Meta(
            description="Consumer group to which offsets of completed batches are committed, so "
            "that tools that show lag see the pipeline. The checkpoint alone decides where it "
            "continues. Default: none."
        ),
    ] = None
    schedule: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)] | None,
        Meta(
            description="When the pipeline runs, as a cron schedule in UTC, for example "
            '"0 2 * * *". For mode availableNow and batch. Default: once, at once.'
        ),
    ] = None
    checkpoint: Annotated[
        NonEmpty | None,
        Meta(
            description="Directory of the checkpoint, for example s3a://bucket/checkpoints/views. "
            "A new directory starts from the beginning. Default: a directory of the pipeline's "
            "own."
        ),
    ] = None
    restart_policy: Annotated[
        RestartPolicy,
        Meta(description="When the driver is started again. Default: after failures, 10 s later."),
    ] = field(default_factory=RestartPolicy)
    spark_conf: Annotated[
        FreeForm,
        Meta(
            description='Spark settings, for example {spark.sql.shuffle.partitions: "8"}. '
            "Default: none."
        ),
    ] = field(default_factory=dict)
    suspend: Annotated[
        bool,
        Meta(description="Stop the pipeline; it continues from its checkpoint. Default: false."),
    ] = False
    tests: Annotated[
        list[SampleTest],
        Meta(
            max_length=100,
            description="Tests of the steps with rows of their own, for `odradek pipeline test`. "
            "Default: none.",
        ),
    ] = field(default_factory=list)
    kubernetes: Annotated[
        Kubernetes,
        Meta(description="How the pipeline runs on Kubernetes; the local runtime ignores it."),
    ] = field(default_factory=Kubernetes)
