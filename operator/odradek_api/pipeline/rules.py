"""Rules of a SparkPipeline that a schema cannot express; each one names the field it is about.

The API server checks PIPELINE_RULES (CEL) too. `problems` needs Python: parse.py calls it for
manifests, the operator for stored resources, and the driver for its job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from odradek_api.base import Rule
from odradek_api.cron import ScheduleError, parse_schedule
from odradek_api.pipeline.lookups import LOOKUP_KINDS, Lookup, jdbc_problems, lookup_kinds
from odradek_api.pipeline.outputs import outputs
from odradek_api.pipeline.schema_registry import source_problems
from odradek_api.pipeline.sink_rules import (
    SINK_KINDS,
    cluster_problems,
    is_json,
    sink_kinds,
    sinks_problems,
)
from odradek_api.pipeline.sources import Source
from odradek_api.pipeline.spec import SparkPipelineSpec, Step

Problems = Iterator[tuple[str, str]]  # field relative to spec, sentence

FILE_FORMATS = ("text", "json", "csv", "parquet")
PARSED_FORMATS = ("json", "csv", "avro", "protobuf")  # of which a record may fail to parse
TOPIC_FORMATS = ("raw", "text", "json", "csv", "avro", "protobuf")


def _kinds_in_cel(part: str, kinds: Iterable[str] = SINK_KINDS) -> str:
    """How many of the kinds of a sink (or a lookup) are given."""
    return " + ".join(f"(has({part}.{kind}) ? 1 : 0)" for kind in kinds)


_SINK, _SINKS = _kinds_in_cel("self.sink"), "(has(self.sinks) && self.sinks.size() > 0)"

PIPELINE_RULES = (
    Rule(
        f"has(self.sdp) || {_SINKS} || (has(self.sink) && {_SINK} == 1)",
        "exactly one of topic, table, mirror and console is required",
        "sink",
        lambda new, _: new.sdp is not None or bool(new.sinks) or len(sink_kinds(new.sink)) == 1,
    ),
    Rule(
        f"!{_SINKS} || !has(self.sink) || {_SINK} == 0",
        "excludes sink: move the sink into the list, with the name main",
        "sinks",
        lambda new, _: not (new.sinks and sink_kinds(new.sink)),
    ),
    Rule(
        f"!has(self.sinks) || self.sinks.all(s, {_kinds_in_cel('s')} == 1)",
        "each sink needs exactly one of topic, table, mirror and console",
        "sinks",
        lambda new, _: all(len(sink_kinds(sink)) == 1 for sink in new.sinks),
    ),
    Rule(
        "has(self.sdp) || (has(self.sources) && self.sources.size() > 0)",
        "at least one source is required",
        "sources",
        lambda new, _: new.sdp is not None or bool(new.sources),
    ),
    Rule(
        "!has(self.sources) || "
        "self.sources.all(s, ((has(s.topics) && s.topics.size() > 0) ? 1 : 0) + "
        "(has(s.topicPattern) ? 1 : 0) + (has(s.files) ? 1 : 0) + (has(s.table) ? 1 : 0) + "
        "(has(s.rate) ? 1 : 0) == 1)",
        "each source needs exactly one of topics, topicPattern, files, table and rate",
        "sources",
        lambda new, _: all(len(_source_kinds(s)) == 1 for s in new.sources),
    ),
    Rule(
        f"!has(self.lookups) || self.lookups.all(l, {_kinds_in_cel('l', LOOKUP_KINDS)} == 1)",
        "each lookup needs exactly one of topic, table and jdbc",
        "lookups",
        lambda new, _: all(len(lookup_kinds(lookup)) == 1 for lookup in new.lookups),
    ),
    Rule(
        "!has(self.sdp) || ((!has(self.sources) || self.sources.size() == 0) && "
        "(!has(self.steps) || self.steps.size() == 0) && "
        f"(!has(self.sink) || {_SINK} == 0) && !{_SINKS} && "
        "(!has(self.lookups) || self.lookups.size() == 0) && !has(self.deadLetter))",
        "reads, transforms and writes in its project: remove sources, lookups, steps, sinks "
        "and deadLetter",
        "sdp",
        lambda new, _: (
            new.sdp is None
            or not (
                new.sources
                or new.lookups
                or new.steps
                or new.sinks
                or sink_kinds(new.sink)
                or new.dead_letter
            )
        ),
    ),
)


def problems(spec: SparkPipelineSpec) -> list[tuple[str, str]]:
    """[("sources[0].format.schema", "json needs one: …")]; PIPELINE_RULES are not repeated here."""
    found = [p for n, source in enumerate(spec.sources) for p in _source(spec, n, source)]
    found += [p for n, lookup in enumerate(spec.lookups) for p in _lookup(spec, n, lookup)]
    names = [source.name for source in spec.sources]
    lookups = [lookup.name for lookup in spec.lookups]
    for n, step in enumerate(spec.steps):
        found += _step(n, step, [*names, *lookups])
        names.append(step_name(n, step))
    found += _names(spec)
    found += _tests(spec)
    found += _declarative(spec) if spec.sdp is not None else sinks_problems(spec, names)
    found += _run(spec)
    return found


def refusals(spec: SparkPipelineSpec) -> list[tuple[str, str]]:
    """`problems` with full paths ("spec.steps[0].inputs"); none if a CEL rule is broken already."""
    if not all(rule.holds(spec, None) for rule in PIPELINE_RULES):
        return []
    return [(f"spec.{at}", message) for at, message in problems(spec)]


def step_name(number: int, step: Step) -> str:
    return step.name or f"step_{number + 1}"


def _source_kinds(source: Source) -> list[str]:
    kinds = {"topics": source.topics, "topicPattern": source.topic_pattern,
             "files": source.files, "table": source.table, "rate": source.rate}  # fmt: skip
    return [name for name, given in kinds.items() if given]


def _source(spec: SparkPipelineSpec, number: int, source: Source) -> Problems:
    at = f"sources[{number}]"
    yield from _format(at, source)
    if source.kafka_source and not (source.kafka.bootstrap_servers or source.cluster):
        yield from cluster_problems(spec, at)
    if source.topic_pattern is not None and (wrong := _regex(source.topic_pattern)):
        yield f"{at}.topicPattern", wrong
    if source.from_ == "offsets":
        if not source.offsets:
            yield f"{at}.offsets", 'from: offsets needs them, for example {visits: {"0": 4711}}'
        yield from _offsets(f"{at}.offsets", source.offsets)
    elif source.offsets:
        yield f"{at}.offsets", f"has no effect with from: {source.from_}"
    if source.from_ == "timestamp" and source.timestamp is None:
        yield f"{at}.timestamp", "from: timestamp needs one, for example 2026-11-16T12:00:00Z"
    if source.timestamp is not None:
        if source.from_ != "timestamp":
            yield f"{at}.timestamp", f"has no effect with from: {source.from_}"
        if timestamp_ms(source.timestamp) is None:
            yield (
                f"{at}.timestamp",
                "is not a time such as 2026-11-16T12:00:00Z",
            )
    if source.until and spec.mode != "batch":
        yield f"{at}.until", f"needs mode: batch; this is mode: {spec.mode}"
    yield from _offsets(f"{at}.until", source.until)
    if source.rate is not None and spec.mode != "streaming":
        yield f"{at}.rate", "generated rows need mode: streaming"
    if source.dedup is not None and source.watermark is None and spec.mode != "batch":
        yield (
            f"{at}.dedup",
            "needs a watermark: without one, every key is kept forever",
        )


def _lookup(spec: SparkPipelineSpec, number: int, lookup: Lookup) -> Problems:
    at = f"lookups[{number}]"
    if lookup.topic is not None:
        read = Source(topics=[lookup.topic.name], format=lookup.topic.format)
        yield from _format(f"{at}.topic", read)
        if not (lookup.kafka.bootstrap_servers or lookup.cluster):
            yield from cluster_problems(spec, at)
    if lookup.jdbc is not None:
        yield from jdbc_problems(f"{at}.jdbc", lookup.jdbc)


def _format(at: str, source: Source) -> Problems:
    form = source.format
    if source.files is not None and form.type not in FILE_FORMATS:
        yield f"{at}.format.type", f"files can be {', '.join(FILE_FORMATS)}, not {form.type}"
    if source.kafka_source and form.type not in TOPIC_FORMATS:
        yield f"{at}.format.type", f"records can be {', '.join(TOPIC_FORMATS)}, not {form.type}"
    if source.rate is not None and form.type != "raw":
        yield f"{at}.format", "generated rows already have their columns"
    yield from source_problems(at, source)
    if source.table is not None and form.type != "raw":
        yield f"{at}.format", "a table already has its columns"
    if source.tombstones and not (source.kafka_source and form.type in PARSED_FORMATS):
        yield (
            f"{at}.tombstones",
            f"is for topics of format {', '.join(PARSED_FORMATS)}; others keep records without a "
            "value anyway",
        )
    if form.type in (*PARSED_FORMATS, "parquet"):
        if form.schema is None:
            example = '"page STRING, at TIMESTAMP"'
            if form.type == "avro" and form.registry is None:
                example = '{"type": "record", …}'
            yield f"{at}.format.schema", f"{form.type} needs one, for example {example}"
        elif form.type == "avro" and form.registry is None and not is_json(form.schema):
            yield f"{at}.format.schema", "an Avro schema must be JSON"
    elif form.schema is not None:
        yield f"{at}.format.schema", f"{form.type} already has its columns"


def _offsets(at: str, offsets: dict[str, Any]) -> Problems:
    for topic, partitions in offsets.items():
        if not isinstance(partitions, dict):
            yield f"{at}.{topic}", 'must map partitions to offsets: {"0": 4711}'
            continue
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or not isinstance(offset, int) or offset < -2:
                yield f"{at}.{topic}.{partition}", f"{offset!r} is not an offset"


def _step(number: int, step: Step, names: list[str]) -> Problems:
    at = f"steps[{number}]"
    kinds = sum(kind is not None for kind in (step.sql, step.python, step.code))
    if kinds > 1 or not (kinds or step.watermark or step.dedup):
        yield at, "needs exactly one of sql, python and code (or only a watermark or dedup)"
    for name in step.inputs:
        if name not in names:
            yield (
                f"{at}.inputs",
                f"there is no view {name}, only {', '.join(names)}",
            )
    if step.inputs and step.sql is not None:
        yield f"{at}.inputs", "has no effect with sql, which names its views itself"
    if step.code is not None:
        try:
            compile(step.code, "code", "exec")
        except SyntaxError as error:
            yield f"{at}.code", f"is not Python: {error.msg} in line {error.lineno}"


def _names(spec: SparkPipelineSpec) -> Problems:
    seen: set[str] = set()
    named = [(f"sources[{n}].name", s.name) for n, s in enumerate(spec.sources)]
    named += [(f"lookups[{n}].name", one.name) for n, one in enumerate(spec.lookups)]
    named += [(f"steps[{n}].name", step_name(n, s)) for n, s in enumerate(spec.steps)]
    for at, name in named:
        if name in seen:
            yield at, f"the name {name} is already taken"
        seen.add(name)


def _tests(spec: SparkPipelineSpec) -> Problems:
    if spec.sdp is not None and spec.tests:
        yield "tests", "are of steps; a project of sdp has none"
    names = [source.name for source in spec.sources]
    names += [lookup.name for lookup in spec.lookups]
    for number, test in enumerate(spec.tests):
        for name, rows in test.rows.items():
            at = f"tests[{number}].rows.{name}"
            if name not in names:
                yield at, f"there is no source or lookup {name}, only {', '.join(names)}"
            elif not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                yield at, "must be a list of rows, each a mapping of columns to values"


def _declarative(spec: SparkPipelineSpec) -> Problems:
    if spec.mode == "batch":
        yield "mode", "batch has no checkpoint, which sdp needs: use availableNow"
    if "://" in (spec.checkpoint or "") and not _own_catalog(spec):
        yield (
            "checkpoint",
            "the catalog of sdp's tables needs a directory on a disk: set spark.hadoop.hive."
            "metastore.uris in sparkConf, or remove the checkpoint",
        )


def _own_catalog(spec: SparkPipelineSpec) -> bool:
    return any("metastore" in key or ".catalog." in key for key in spec.spark_conf)


def _run(spec: SparkPipelineSpec) -> Problems:
    if spec.dead_letter is not None:
        if not spec.kafka.bootstrap_servers:
            yield from cluster_problems(spec, "deadLetter")
        if not any(s.format.type in PARSED_FORMATS for s in spec.sources):
            formats = ", ".join(PARSED_FORMATS)
            yield "deadLetter", f"only records of format {formats} can fail to parse"
        for n, source in enumerate(spec.sources):
            if spec.dead_letter.topic in source.topics:
                yield f"sources[{n}].topics", "must not contain the dead-letter topic"
    if spec.mode == "batch" and spec.checkpoint is not None:
        yield "checkpoint", "mode: batch has no checkpoint; availableNow continues where it ended"
    if spec.mode != "streaming" and spec.trigger is not None:
        yield "trigger", f"mode: {spec.mode} runs once"
    yield from _schedule(spec)
    yield from _of_topics(spec)
    allocation = spec.kubernetes.dynamic_allocation
    low, high = allocation.min_executors, allocation.max_executors
    if low is not None and high is not None and low > high:
        yield "kubernetes.dynamicAllocation.minExecutors", f"{low} is more than maxExecutors"


def _of_topics(spec: SparkPipelineSpec) -> Problems:
    """Fields that are about reading topics batch by batch."""
    given = [("batchTarget", spec.batch_target), ("consumerGroup", spec.consumer_group)]
    for at, value in given:
        if value is None:
            continue
        if spec.sdp is not None:
            yield at, "has no effect on a project of sdp"
        elif spec.mode == "batch":
            yield at, "has no effect with mode: batch"
        elif not any(source.kafka_source for source in spec.sources):
            yield at, "is for topics as sources"
    if spec.consumer_group is None:
        return
    if spec.consumer_group.startswith("odradek."):
        yield "consumerGroup", "odradek. is the prefix of the groups of exactly-once sinks"
    read: dict[str, object] = {}
    for number, source in enumerate(spec.sources):
        cluster = source.kafka.bootstrap_servers or source.cluster
        for topic in source.topics:
            if read.setdefault(topic, cluster) != cluster:
                message = f"{topic} is read from two clusters, and consumerGroup can show one"
                yield f"sources[{number}].topics", message


def _schedule(spec: SparkPipelineSpec) -> Problems:
    if spec.schedule is None:
        return
    try:
        parse_schedule(spec.schedule)
    except ScheduleError as error:
        yield "schedule", str(error)
    if spec.mode == "streaming":
        yield "schedule", "needs a mode that ends: availableNow or batch"
    if spec.mode == "batch" and any(o.sink.table is not None for o in outputs(spec)):
        yield (
            "schedule",
            "with mode: batch each run would write the table again; use availableNow",
        )
    if spec.restart_policy.type == "Always":
        yield "restartPolicy.type", "must be OnFailure or Never with a schedule"


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        return f"is not a regular expression: {error}"
    return ""


def timestamp_ms(text: str) -> int | None:
    """ "2026-11-16T12:00:00Z" → 1794830400000; without a time zone it is UTC."""
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    if at.tzinfo is None:
        at = datetime.fromisoformat(f"{text}+00:00")
    return round(at.timestamp() * 1000)
