"""The status of a pipeline: as its driver reports it (JobStatus), and in the resource.

The driver writes its JobStatus to a file (local runtime) or to an annotation of its pod
(Kubernetes), which the operator copies into the SparkPipeline's status:

{"pipeline": "default/page-views", "state": "Running", "pid": 4711,
 "queries": {"main": {"batch": 17, "inputRate": 512.0, "batchMs": 220, "lag": {"visits": 12}, …}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, field

from odradek_api.base import GROUP, Condition, Status
from odradek_api.pipeline.outputs import DEAD_LETTER

PROGRESS_ANNOTATION = f"{GROUP}/progress"  # of a driver's pod: its JobStatus as JSON


class QueryProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    batch: int = -1
    input_rate: float = 0.0  # records per second that arrived
    process_rate: float = 0.0  # records per second while a batch was running
    batch_ms: int = 0
    rows: int = 0  # of all batches of this run
    lag: dict[str, int] = {}  # topic → records that are not read yet
    checkpoint: str = ""  # when the last batch was committed
    state_rows: int = 0  # keys and windows in the state store
    state_bytes: int = 0  # memory of the state store
    rows_by_source: dict[str, int] = {}  # the topics or directory of a source → rows of this run
    late_rows: int = 0  # dropped because they were later than the watermark
    rows_out: int = -1  # written by all batches of this run; -1: the sink does not say
    watermark: str = ""  # event time up to which windows are closed; empty without one
    batch_limit: int = 0  # records of each source in the next batch, at most (spec.batchTarget)


def of_sinks(queries: Mapping[str, QueryProgress]) -> QueryProgress | None:
    """A pipeline's progress over the queries of its sinks: it is as far as the slowest of them.

    None before the first report. Each query reads the sources by itself, so rows that are read
    are not added up.
    """
    known = [progress for name, progress in queries.items() if name != DEAD_LETTER]
    if len(known) < 2:
        return known[0] if known else None
    topics = {topic for one in known for topic in one.lag}
    return QueryProgress(
        batch=min(one.batch for one in known),
        input_rate=max(one.input_rate for one in known),
        process_rate=min(one.process_rate for one in known),
        batch_ms=max(one.batch_ms for one in known),
        rows=max(one.rows for one in known),
        lag={topic: max(one.lag.get(topic, 0) for one in known) for topic in sorted(topics)},
        checkpoint=min(one.checkpoint for one in known),
        state_rows=sum(one.state_rows for one in known),
        state_bytes=sum(one.state_bytes for one in known),
        late_rows=sum(one.late_rows for one in known),
        rows_out=sum(max(0, one.rows_out) for one in known),
        batch_limit=min(one.batch_limit for one in known),
        watermark=min((one.watermark for one in known if one.watermark), default=""),
    )


class SinkStatus(Status, frozen=True, kw_only=True):
    """One of several sinks."""

    name: Annotated[str, Meta(description="Name of the sink.")]
    rows_out: Annotated[
        int, Meta(description="Rows written since the driver started; -1: the sink does not say.")
    ] = -1
    lag_records: Annotated[
        int, Meta(description="Records of its source topics that it has not read yet.")
    ] = 0
    batch: Annotated[int, Meta(description="Number of its last batch; -1 before the first.")] = -1
    batch_ms: Annotated[int, Meta(description="Duration of that batch in milliseconds.")] = 0
    watermark: Annotated[
        str, Meta(description="Event time up to which its windows are closed; empty without one.")
    ] = ""


class FlowStatus(Status, frozen=True, kw_only=True):
    """One flow of a project of Spark's declarative pipelines."""

    name: Annotated[str, Meta(description="Name of the flow.")]
    state: Annotated[
        str, Meta(description="Queued, Running, Completed, Skipped, Stopped, Failed, …")
    ] = ""
    inputs: Annotated[list[str], Meta(description="Tables and views that it reads.")] = field(
        default_factory=list
    )
    rows: Annotated[
        int, Meta(description="Rows that a streaming flow has read since the driver started.")
    ] = 0
    input_rate: Annotated[float, Meta(description="Records per second that arrived.")] = 0.0
    message: Annotated[str, Meta(description="Why it failed.")] = ""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pipeline: str
    state: str  # Starting, Running, Completed, Stopped, Failed
    pid: int = 0
    since: str = ""
    queries: dict[str, QueryProgress] = {}  # of sdp: by the name of the streaming flow
    flows: list[FlowStatus] = []  # of sdp: all flows
    field: str = ""  # the field of the spec that an error is about
    message: str = ""


class TopicLag(Status, frozen=True, kw_only=True):
    """Lag of one source topic."""

    topic: Annotated[str, Meta(description="Kafka topic.")]
    records: Annotated[int, Meta(description="Records that are not read yet.")] = 0


class SparkPipelineStatus(Status, frozen=True, kw_only=True):
    """The observed state of the pipeline."""

    observed_generation: Annotated[
        int, Meta(description="metadata.generation that this status was computed from.")
    ] = 0
    conditions: Annotated[list[Condition], Meta(description="Ready.")] = field(default_factory=list)
    application: Annotated[
        str, Meta(description="Name of the SparkApplication; empty until there is one.")
    ] = ""
    state: Annotated[
        str,
        Meta(
            description="State of the SparkApplication in the Spark operator's terms: SUBMITTED, "
            "RUNNING, COMPLETED, FAILED, …"
        ),
    ] = ""
    restarts: Annotated[int, Meta(description="Restarts of the driver.")] = 0
    lag: Annotated[list[TopicLag], Meta(description="Lag of each source topic.")] = field(
        default_factory=list
    )
    lag_records: Annotated[
        int, Meta(description="Records of all source topics that are not read yet.")
    ] = 0
    input_rate: Annotated[float, Meta(description="Records per second that arrived.")] = 0.0
    process_rate: Annotated[
        float, Meta(description="Records per second while a batch was running.")
    ] = 0.0
    rows_in: Annotated[int, Meta(description="Rows read since the driver started.")] = 0
    rows_out: Annotated[
        int, Meta(description="Rows written since the driver started; -1: the sink does not say.")
    ] = -1
    dead_letters: Annotated[
        int, Meta(description="Records that went to the dead-letter topic since then.")
    ] = 0
    late_rows: Annotated[
        int, Meta(description="Rows dropped since then because they were later than the watermark.")
    ] = 0
    state_rows: Annotated[int, Meta(description="Keys and windows in the state store.")] = 0
    state_bytes: Annotated[int, Meta(description="Memory of the state store in bytes.")] = 0
    watermark: Annotated[
        str, Meta(description="Event time up to which windows are closed; empty without one.")
    ] = ""
    batch: Annotated[int, Meta(description="Number of the last batch; -1 before the first.")] = -1
    batch_ms: Annotated[int, Meta(description="Duration of the last batch in milliseconds.")] = 0
    batch_limit: Annotated[
        int,
        Meta(
            description="Records of each source in the next batch, at most (spec.batchTarget); 0 "
            "without a target."
        ),
    ] = 0
    last_batch_time: Annotated[str, Meta(description="When the last batch was committed.")] = ""
    sinks: Annotated[list[SinkStatus], Meta(description="Each sink, if there are several.")] = (
        field(default_factory=list)
    )
    flows: Annotated[
        list[FlowStatus], Meta(description="The flows of a pipeline with spec.sdp.")
    ] = field(default_factory=list)
    last_schedule_time: Annotated[
        str, Meta(description="Scheduled time of the last run that was started (spec.schedule).")
    ] = ""
    next_schedule_time: Annotated[
        str, Meta(description="Scheduled time of the next run (spec.schedule).")
    ] = ""
