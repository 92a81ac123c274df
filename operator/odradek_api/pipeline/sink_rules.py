"""Rules of sinks that a schema cannot express (rules.py calls them)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from odradek_api.pipeline.outputs import Output, outputs
from odradek_api.pipeline.schema_registry import sink_problems
from odradek_api.pipeline.sinks import Sink, TableSink, TopicSink
from odradek_api.pipeline.spec import SparkPipelineSpec

Problems = Iterator[tuple[str, str]]  # field relative to spec, sentence

SINK_KINDS = ("topic", "table", "mirror", "console")


def sink_kinds(sink: Sink) -> list[str]:
    return [kind for kind in SINK_KINDS if getattr(sink, kind) is not None]


def sinks_problems(spec: SparkPipelineSpec, views: Sequence[str]) -> Problems:
    """`views`: the names of all sources and steps."""
    names: set[str] = set()
    tables: dict[str, str] = {}
    for output in outputs(spec):
        if output.query in names:
            yield f"{output.at}.name", f"the name {output.query} is already taken"
        names.add(output.query)
        if output.view and output.view not in views:
            yield f"{output.at}.from", f"there is no view {output.view}, only {', '.join(views)}"
        if output.sink.table is not None:
            path = output.sink.table.path.rstrip("/")
            if path in tables:
                yield f"{output.at}.table.path", f"is already the table of {tables[path]}"
            tables.setdefault(path, output.at)
        yield from _sink(spec, output)


def _sink(spec: SparkPipelineSpec, output: Output) -> Problems:
    at, sink = output.at, output.sink
    needs_kafka = sink.topic is not None or sink.mirror is not None
    if needs_kafka and not (sink.kafka.bootstrap_servers or sink.cluster):
        yield from cluster_problems(spec, at)
    if sink.topic is not None:
        yield from _topic(spec, at, sink.topic)
    if sink.table is not None:
        yield from _table(spec, output, sink.table)
    if sink.mirror is not None:
        yield from _mirror(spec, output)
    elif not spec.steps and len(spec.sources) > 1 and not output.view:
        if spec.sinks:
            yield f"{at}.from", "is required: there are several sources and no steps"
        else:
            yield "steps", "several sources need a step that combines them"


def _topic(spec: SparkPipelineSpec, at: str, topic: TopicSink) -> Problems:
    yield from sink_problems(at, topic)
    if topic.value == "avro" and topic.schema is None and topic.registry is None:
        yield f"{at}.topic.schema", 'avro needs one, for example {"type": "record", …}'
    elif topic.schema is not None and not is_json(topic.schema):
        yield f"{at}.topic.schema", "an Avro schema must be JSON"
    if topic.delivery == "exactlyOnce" and spec.mode == "batch":
        yield f"{at}.topic.delivery", "exactlyOnce needs a checkpoint: use mode: availableNow"
    if topic.writers is not None and topic.delivery != "exactlyOnce":
        yield f"{at}.topic.writers", "has no effect without delivery: exactlyOnce"


def _table(spec: SparkPipelineSpec, output: Output, table: TableSink) -> Problems:
    at, mode = output.at, output.sink.output_mode
    if not table.key:
        if mode != "append":
            yield (
                f"{at}.outputMode",
                f"{mode} needs format: delta and a key; without them a table can "
                "only be appended to",
            )
        if table.delete_when is not None:
            yield f"{at}.table.deleteWhen", "has no effect without key"
        return
    if table.format != "delta":
        yield f"{at}.table.key", "needs format: delta; Parquet files can only be appended to"
    if mode == "complete":
        yield f"{at}.outputMode", "with a key it can be append or update"
    if spec.mode == "batch":
        yield f"{at}.table.key", "mode: batch writes a new table; use availableNow"


def _mirror(spec: SparkPipelineSpec, output: Output) -> Problems:
    """A mirror writes one source, unchanged."""
    named = [n for n, source in enumerate(spec.sources) if source.name == output.view]
    if output.view and not named:
        yield f"{output.at}.from", "a mirror copies records unchanged: name a source"
        return
    if spec.steps and not output.view:
        advice = "; name a source in `from`" if spec.sinks else ""
        yield f"{output.at}.mirror", f"copies records unchanged: there can be no steps{advice}"
    for n in named or range(len(spec.sources)):
        source = spec.sources[n]
        if not source.kafka_source or source.format.type != "raw":
            yield f"sources[{n}].format.type", "a mirror needs topics with format raw"
    if len(spec.sources) > 1 and not output.view:
        yield "sources", "a mirror needs exactly one source; it may name several topics"


def cluster_problems(spec: SparkPipelineSpec, part: str) -> Problems:
    if spec.cluster is None and spec.kafka.bootstrap_servers is None:
        yield "cluster", f"{part} needs a KafkaCluster, or kafka.bootstrapServers"


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
