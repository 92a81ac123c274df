"""Pipelines over records whose schemas are in a registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_tests.schemas.answering import Answer, Answering, ok
from odradek_api.parse import parse
from odradek_api.pipeline.job import SpecError
from odradek_schemas import Client, Decoder, Encoder, Registry, Schema
from odradek_testkit.pipelines import Pipelines, headers
from odradek_testkit.schema_registry import SchemaRegistry
from spark_tests.test_jobs import run, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = """{"type": "record", "name": "V", "fields": [{"name": "id", "type": "int"}]}"""
NEW = """{"type": "record", "name": "V", "fields": [{"name": "id", "type": "int"},
    {"name": "page", "type": ["null", "string"], "default": null}]}"""
COLUMNS = "id INT NOT NULL, page STRING"
LOGIN = "ODRADEK_TEST_REGISTRY_LOGIN"


def source(topic: str, kind: str, url: str, **config: str) -> dict[str, Any]:
    registry = {"url": url, "config": config}
    form = {"type": kind, "schema": COLUMNS, "registry": registry}
    return {"topics": [topic], "format": form}


def two_versions(method: str, path: str) -> Answer:
    texts = {"/schemas/ids/1": OLD, "/schemas/ids/2": NEW}
    if path in texts:
        return ok({"schema": texts[path]})
    if path.startswith("/subjects/out-"):
        return ok({"schema": NEW, "id": 2, "version": 2})
    return 404, {}, b'{"error_code": 40403, "message": "Schema not found"}'


def avro(text: str, schema_id: int, value: object) -> bytes:
    with Answering(lambda *_: ok({"schema": text, "id": schema_id, "version": 1})) as server:
        return Encoder.for_subject(Client(Registry(server.url)), "any").encode(value)


@pytest.mark.spark
def test_records_of_every_version_are_read_and_written_with_the_newest(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    """A record that names no schema, or an unknown one, is a dead letter."""
    topic, out, dead = pipelines.topic(1), f"out-{pipelines.topic(1)}", pipelines.topic(1)
    pipelines.topic(1, out)
    good = [avro(OLD, 1, {"id": 1}), avro(NEW, 2, {"id": 2, "page": "/"})]
    bad = [b'{"id": 1}', b"\0\0\0\0\x09x", good[0] + b"more"]
    pipelines.produce(topic, [*good, *bad])
    with Answering(two_versions) as registry:
        said = run(
            spark,
            pipelines,
            sources=[source(topic, "avro", registry.url)],
            deadLetter={"topic": dead},
            sink={"topic": {"name": out, "value": "avro", "registry": {"url": registry.url}}},
        )
        assert said.queries["main"].rows == 5
        decoder = Decoder(Client(Registry(registry.url)))
        found = [decoder.decode(message.value() or b"") for message in pipelines.records(out)]
        token = {"bearer.auth.token": f"${{env:{LOGIN}}}"}
        own = [source(topic, "avro", registry.url, **token)]
        with pytest.raises(SpecError, match=rf"config: bearer\.auth\.token: .*{LOGIN} is not set"):
            run(spark, pipelines, checkpoint="login", sources=own, sink={"console": {}})
        url = registry.url
    assert [(one.id, one.value) for one in found] == [
        (2, {"id": 1, "page": None}),
        (2, {"id": 2, "page": "/"}),
    ]
    why = {m.value(): headers(m)["odradek.error"].decode() for m in pipelines.records(dead)}
    assert list(why) == bad
    assert "0x7b, not 0x00" in why[bad[0]]
    assert f"schema id 9 is not in {url}" in why[bad[1]]
    assert "schema id 1: 4 bytes follow" in why[bad[2]]


@pytest.mark.spark
def test_a_registry_that_is_away_fails_the_pipeline_and_skips_nothing(
    spark: SparkSession, pipelines: Pipelines
) -> None:
    topic, dead = pipelines.topic(1), pipelines.topic(1)
    pipelines.produce(topic, [avro(OLD, 1, {"id": 1})])
    said = run(
        spark,
        pipelines,
        sources=[source(topic, "avro", "http://127.0.0.1:1")],
        deadLetter={"topic": dead},
        sink={"table": {"path": "table"}},
    )
    assert (said.state, said.field) == ("Failed", "spec.sources.format.registry")
    assert "http://127.0.0.1:1 does not answer (schema id 1)" in said.message
    assert pipelines.records(dead) == []


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as running:
        yield running


SCHEMAS = {
    "avro": Schema("AVRO", NEW),
    "json": Schema("JSON", '{"type": "object", "properties": {"id": {"type": "integer"}}}'),
    "protobuf": Schema("PROTOBUF", 'syntax = "proto3"; message V { int64 id = 1; '
                       "optional string page = 2; }"),
}  # fmt: skip


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.long  # the registry is a JVM of its own, which takes 8 s to start
@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_with_a_real_registry(
    spark: SparkSession, pipelines: Pipelines, real: SchemaRegistry, kind: str
) -> None:
    """Through the pipeline twice: written by Encoder and read by Spark, written by Spark and read
    by Decoder and by Spark again."""
    client = Client(Registry(real.url))
    topic, out = pipelines.topic(2), pipelines.topic(2)
    rows = [{"id": n, "page": f"/{n}"} for n in range(50)]
    write = Encoder.for_subject(client, f"{topic}-value", SCHEMAS[kind])
    pipelines.produce(topic, map(write.encode, rows))
    client.register(f"{out}-value", SCHEMAS[kind])
    sink = {"topic": {"name": out, "value": kind, "registry": {"url": real.url}}}
    run(spark, pipelines, sources=[source(topic, kind, real.url)], sink=sink)
    decoder = Decoder(client)
    found = [decoder.decode(message.value() or b"").value for message in pipelines.records(out)]
    assert sorted(found, key=lambda row: row["id"]) == rows  # type: ignore[index]
    run(spark, pipelines, checkpoint="again", sources=[source(out, kind, real.url)],
        sink={"table": {"path": "table"}})  # fmt: skip
    assert table(spark, pipelines.directory / "table") == list(range(50))


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.long  # as above
def test_subjects_that_do_not_fit_are_refused_by_field(
    spark: SparkSession, pipelines: Pipelines, real: SchemaRegistry
) -> None:
    topic = pipelines.topic(1)
    pipelines.produce(topic, [{"id": 1}])
    client = Client(Registry(real.url))
    client.register("refused-json", SCHEMAS["json"])

    def refused(**sink: str) -> str:
        form = {"type": "json", "schema": "id INT"}
        spec: dict[str, Any] = {"name": topic, "registry": {"url": real.url}, **sink}
        with pytest.raises(SpecError) as error:
            run(spark, pipelines, checkpoint=f"refused-{len(sink)}",
                sources=[{"topics": [topic], "format": form}], sink={"topic": spec})  # fmt: skip
        return str(error.value)

    assert f"sink.topic.subject: version latest of subject {topic}-value is not in" in refused()
    wrong = refused(value="avro", subject="refused-json")
    assert "sink.topic.value: subject refused-json has the type JSON" in wrong


def with_registry(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> list[str]:
    form = {"type": "avro", "schema": COLUMNS, "registry": {"url": "https://r:1"}}
    spec: dict[str, Any] = {
        "kafka": {"bootstrapServers": "k:1"},
        "sources": [{"topics": ["a"], "format": form}],
        "sink": {"topic": {"name": "b", "value": "avro", "registry": {"url": "https://r:1"}}},
    }
    change(spec)
    kind = {"apiVersion": "odradek.dev/v1alpha1", "kind": "SparkPipeline"}
    document = {**kind, "metadata": {"name": "p"}, "spec": spec}
    try:
        parse(document)
    except Exception as error:
        return str(error).splitlines()
    return []


FORM, SINK = ("sources", 0, "format"), ("sink", "topic")


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ((*FORM, "type"), "csv", "sources[0].format.registry: has no effect with type: csv"),
        ((*FORM, "schema"), None, "sources[0].format.schema: avro needs one"),
        ((*FORM, "registry", "url"), "r:1", "is not http://HOST:PORT"),
        ((*FORM, "registry", "url"), "https://ann:secret@r:1", "contains a login"),
        ((*FORM, "registry", "config"), {"user": "x"}, "config[user]: is unknown"),
        ((*FORM, "registry", "config"), {"bearer.auth.token": "secret"}, "is a secret"),
        ((*SINK, "value"), "csv", "sink.topic.registry: has no effect with value: csv"),
        ((*SINK, "schema"), "{}", "sink.topic.schema: the subject in the registry has it"),
        ((*SINK, "registry"), None, 'avro needs one, for example {"type": "record"'),
    ],
)
def test_wrong_specs_name_the_field(
    tmp_path: Path, path: tuple[Any, ...], value: object, why: str
) -> None:
    def change(spec: dict[str, Any]) -> None:
        *way, last = path
        at: Any = spec
        for step in way:
            at = at[step]
        at[last] = value
        if value is None:
            del at[last]

    assert with_registry(lambda _: None, tmp_path) == []
    (line,) = with_registry(change, tmp_path)
    assert why in line
    assert "secret@" not in line
