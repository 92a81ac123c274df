"""Specs that are refused: by the field's name, before Spark is even there."""

import json
from typing import Any

import pytest

from odradek_api.pipeline.job import Job, SpecError, read_job
from odradek_api.pipeline.rules import timestamp_ms

GOOD: dict[str, Any] = {
    "kafka": {"bootstrapServers": "localhost:9092"},
    "sources": [{"topics": ["visits"]}],
    "sink": {"topic": {"name": "out", "value": "raw"}},
}
JSON = {"type": "json", "schema": "a INT"}


def read(**changes: Any) -> Job:
    return read_job(json.dumps({"name": "x", "spec": {**GOOD, **changes}}).encode())


def source(**fields: Any) -> dict[str, Any]:
    return {"sources": [{"topics": ["visits"], **fields}]}


def sinks(*given: dict[str, Any]) -> dict[str, Any]:
    return {"sink": {}, "sinks": list(given)}


def lookups(*given: dict[str, Any]) -> dict[str, Any]:
    return {"lookups": [{"name": "seen", **one} for one in given]}


def jdbc(**fields: Any) -> dict[str, Any]:
    return {"jdbc": {"url": "jdbc:a:b", "table": "t", **fields}}


A: dict[str, Any] = {"name": "a", "console": {}}


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"sources": []}, "spec.sources", "at least one source"),
        ({"sink": {}}, "spec.sink", "exactly one of"),
        ({"sink": {"console": {}, "table": {"path": "x"}}}, "spec.sink", "exactly one of"),
        ({"sources": [{"topics": ["a"], "rate": {}}]}, "spec.sources", "exactly one of"),
        ({"sinks": [{"name": "a", "console": {}}]}, "spec.sinks", "excludes sink"),
        (sinks({"name": "a"}), "spec.sinks", "each sink needs exactly one of"),
        (sinks({"console": {}}), "spec.sinks[0]", "name"),
        (lookups({}), "spec.lookups", "exactly one of topic, table and jdbc"),
        (lookups({"table": {"path": "x"}}, {"table": {"path": "x"}}), "spec.lookups[1].name",
         "already taken"),
        (lookups({"topic": {"name": "t", "format": {"type": "json"}}}),
         "spec.lookups[0].topic.format.schema", "needs one"),
        (lookups({"jdbc": {"url": "jdbc:a:b"}}), "spec.lookups[0].jdbc", "one of table and query"),
        (lookups(jdbc(url="postgres://x")), "spec.lookups[0].jdbc.url", "must begin with jdbc:"),
        (lookups(jdbc(url="jdbc:a://b/c?user=u&password=p")), "spec.lookups[0].jdbc.url", "login"),
        (lookups(jdbc(url="jdbc:a://u:p@b/c")), "spec.lookups[0].jdbc.url", "login"),
        (lookups(jdbc(password="secret")), "spec.lookups[0].jdbc.password", "name a variable"),
        (lookups(jdbc(options={"user": "x"})), "spec.lookups[0].jdbc.options[user]", "of its own"),
        ({**lookups({"table": {"path": "x"}}), **sinks({**A, "from": "seen"})},
         "spec.sinks[0].from", "no view seen"),
        ({**lookups({"table": {"path": "x"}}), "sink": {}, "sources": [], "sdp": {"path": "p"}},
         "spec.sdp", "remove sources, lookups"),
        ({"batchTarget": "1 second", "mode": "batch"}, "spec.batchTarget", "mode: batch"),
        ({"batchTarget": "soon"}, "spec.batchTarget", "regex"),
        ({"consumerGroup": "g", "sources": [{"rate": {}}]}, "spec.consumerGroup", "is for topics"),
        ({"consumerGroup": "odradek.x"}, "spec.consumerGroup", "prefix of the groups"),
        ({"consumerGroup": "g", "sources": [
            {"name": "a", "topics": ["t"]},
            {"name": "b", "topics": ["t"], "kafka": {"bootstrapServers": "other:1"}}],
          "steps": [{"sql": "SELECT 1"}]}, "spec.sources[1].topics", "from two clusters"),
        (sinks(A, A), "spec.sinks[1].name", "the name a is already taken"),
        (sinks({**A, "from": "nobody"}), "spec.sinks[0].from", "no view nobody, only source"),
        (sinks({"name": "a", "table": {"path": "x"}}, {"name": "b", "table": {"path": "x/"}}),
         "spec.sinks[1].table.path", "is already the table of sinks[0]"),
        ({**sinks(A), "sources": [{"name": "v", "topics": ["v"]}, {"topics": ["w"]}]},
         "spec.sinks[0].from", "is required"),
        ({**sinks({"name": "a", "mirror": {}}), "steps": [{"sql": "SELECT 1"}]},
         "spec.sinks[0].mirror", "name a source in `from`"),
        ({**sinks({"name": "a", "mirror": {}, "from": "step_1"}), "steps": [{"sql": "SELECT 1"}]},
         "spec.sinks[0].from", "a mirror copies records unchanged"),
        (sinks({"name": "a", "topic": {"name": "t", "writers": 2}}), "spec.sinks[0].topic.writers",
         "no effect"),
        ({**sinks({"name": "a", "table": {"path": "x"}}), "mode": "batch", "schedule": "@daily"},
         "spec.schedule", "would write the table again"),
        ({**sinks(A), "sdp": {"path": "p"}, "sources": []}, "spec.sdp", "remove sources"),
        ({"sink": {"table": {"path": "x", "key": ["a"]}}}, "spec.sink.table.key",
         "needs format: delta"),
        ({"sink": {"table": {"path": "x", "deleteWhen": "a"}}}, "spec.sink.table.deleteWhen",
         "no effect"),
        ({"sink": {"table": {"path": "x"}, "outputMode": "update"}}, "spec.sink.outputMode",
         "needs format: delta and a key"),
        (source(tombstones=True), "spec.sources[0].tombstones", "is for topics of format json"),
        ({"sources": [{"table": {"path": "x"}, "format": JSON}]}, "spec.sources[0].format",
         "already has its columns"),
        ({"tests": [{"name": "t", "rows": {"nobody": []}}]}, "spec.tests[0].rows.nobody",
         "no source or lookup nobody, only source"),
        ({"tests": [{"name": "t", "rows": {"source": [1]}}]}, "spec.tests[0].rows.source",
         "a list of rows"),
        ({"sdp": {"path": "p"}}, "spec.sdp", "remove sources, lookups, steps, sinks"),
        ({"sdp": {"path": "p"}, "sources": []}, "spec.sdp", "remove sources"),
        ({"sorces": []}, "spec", "sorces"),
        (source(format={"type": "json"}), "spec.sources[0].format.schema", "needs one"),
        (source(format={"type": "parquet"}), "spec.sources[0].format.type", "not parquet"),
        (source(format={"type": "avro", "schema": "a INT"}), "spec.sources[0].format.schema",
         "JSON"),
        (source(format={"type": "raw", "schema": "a INT"}), "spec.sources[0].format.schema",
         "already"),
        (source(**{"from": "offsets"}), "spec.sources[0].offsets", "needs them"),
        (source(offsets={"visits": {"0": 1}}), "spec.sources[0].offsets", "no effect"),
        (source(**{"from": "offsets"}, offsets={"visits": {"0": "x"}}),
         "spec.sources[0].offsets.visits.0", "not an offset"),
        (source(**{"from": "timestamp"}), "spec.sources[0].timestamp", "needs one"),
        (source(**{"from": "timestamp"}, timestamp="noon"), "spec.sources[0].timestamp",
         "is not a time"),
        (source(until={"visits": {"0": 5}}), "spec.sources[0].until", "mode: batch"),
        (source(dedup={"by": ["a"]}), "spec.sources[0].dedup", "watermark"),
        (source(watermark={"column": "at", "delay": "soon"}),
         "spec.sources[0].watermark.delay", "matching regex"),
        ({"sources": [{"topicPattern": "("}]}, "spec.sources[0].topicPattern", "regular"),
        ({"steps": [{}]}, "spec.steps[0]", "exactly one"),
        ({"steps": [{"sql": "SELECT 1", "python": "a.py"}]}, "spec.steps[0]", "exactly one"),
        ({"steps": [{"code": "def f(:"}]}, "spec.steps[0].code", "is not Python"),
        ({"steps": [{"python": "a.py", "inputs": ["nobody"]}]}, "spec.steps[0].inputs",
         "no view nobody"),
        ({"steps": [{"name": "source", "sql": "SELECT 1"}]}, "spec.steps[0].name", "already taken"),
        ({"sources": [{"name": "a", "topics": ["a"]}, {"name": "b", "topics": ["b"]}]},
         "spec.steps", "several sources"),
        ({"sink": {"table": {"path": "x"}, "outputMode": "complete"}}, "spec.sink.outputMode",
         "appended"),
        ({"sink": {"mirror": {}}, "steps": [{"sql": "SELECT 1"}]}, "spec.sink.mirror", "steps"),
        ({"sink": {"mirror": {}}, **source(format=JSON)}, "spec.sources[0].format.type", "raw"),
        ({"deadLetter": {"topic": "dead"}}, "spec.deadLetter", "can fail to parse"),
        ({"deadLetter": {"topic": "visits"}, **source(format=JSON)}, "spec.sources[0].topics",
         "must not contain the dead-letter topic"),
        ({"mode": "batch", "checkpoint": "x"}, "spec.checkpoint", "availableNow"),
        ({"mode": "availableNow", "trigger": "1 minute"}, "spec.trigger", "runs once"),
        ({"schedule": "@daily"}, "spec.schedule", "needs a mode that ends"),
        ({"mode": "availableNow", "schedule": "61 * * * *"}, "spec.schedule", "Bad minute"),
        ({"mode": "batch", "schedule": "@daily", "sink": {"table": {"path": "x"}}},
         "spec.schedule", "write the table again"),
        ({"mode": "batch", "schedule": "@daily", "restartPolicy": {"type": "Always"}},
         "spec.restartPolicy.type", "OnFailure or Never"),
        ({"kafka": {}}, "spec.cluster", "needs a KafkaCluster"),
        ({"restartPolicy": {"retries": -1}}, "spec.restartPolicy.retries", ">= 0"),
    ],
)  # fmt: skip
def test_a_wrong_spec_is_refused_by_its_field(
    changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(SpecError) as refused:
        read(**changes)
    assert refused.value.field == field
    assert words in refused.value.message


def test_omitted_fields_have_defaults() -> None:
    spec = read().spec
    assert (spec.mode, spec.sources[0].from_, spec.sources[0].name) == (
        "streaming", "earliest", "source")  # fmt: skip
    assert spec.restart_policy.type == "OnFailure"


def test_paths_begin_at_the_manifest() -> None:
    job = read_job(json.dumps({"name": "x", "spec": GOOD, "directory": "/there"}).encode())
    assert job.path("table") == "/there/table"
    assert job.path("s3a://bucket/table") == "s3a://bucket/table"
    assert job.path("/abs") == "/abs"


def test_addresses_come_from_the_nearest_place() -> None:
    document = {
        "name": "x",
        "namespace": "team",
        "spec": {**GOOD, "kafka": {}, "cluster": {"name": "main"},
                 "sink": {"cluster": {"name": "other", "namespace": "far"},
                          "topic": {"name": "out"}}},
        "clusters": {"team/main": "main:9092", "far/other": "other:9092"},
    }  # fmt: skip
    job = read_job(json.dumps(document).encode())
    source, sink = job.spec.sources[0], job.spec.sink
    assert job.bootstrap("sources[0]", source.cluster, source.kafka) == "main:9092"
    assert job.bootstrap("sink", sink.cluster, sink.kafka) == "other:9092"
    with pytest.raises(SpecError, match=r"spec\.sink\.cluster: the addresses of .* far/other"):
        read_job(json.dumps(document | {"clusters": {"team/main": "m:1"}}).encode()).bootstrap(
            "sink", sink.cluster, sink.kafka
        )


def test_times() -> None:
    assert timestamp_ms("1970-01-01T00:00:01Z") == 1000
    assert timestamp_ms("1970-01-01T00:00:01") == 1000
    assert timestamp_ms("1970-01-01T01:00:01+01:00") == 1000


def test_a_declarative_project_needs_nothing_else() -> None:
    spec: dict[str, Any] = {"sdp": {"path": "project"}}
    job = read_job(json.dumps({"name": "x", "spec": spec}).encode())
    assert job.spec.sources == []
    for change, field in (
        ({"mode": "batch"}, "spec.mode"),
        ({"checkpoint": "s3a://bucket/x"}, "spec.checkpoint"),
    ):
        with pytest.raises(SpecError) as refused:
            read_job(json.dumps({"name": "x", "spec": {**spec, **change}}).encode())
        assert refused.value.field == field
