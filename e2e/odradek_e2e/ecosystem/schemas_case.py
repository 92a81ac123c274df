"""A schema registry that keeps its schemas in topics of the broker, and loses nothing.

- registers: schemas of three kinds, through Confluent's REST API
- journal: librdkafka sees records in the registry's topic
- survives kill -9: after a restart every schema is there under its id, read from the topic
"""

from __future__ import annotations

from odradek_e2e.ecosystem.case import Case, Place
from odradek_e2e.ecosystem.contract import Check, Unexpected, read, same
from odradek_e2e.ecosystem.running import Checks
from odradek_schemas import Client, Registry, Schema
from odradek_testkit.schema_registry import VERSION, SchemaRegistry

SCHEMAS = {
    "avro-value": Schema("AVRO", '{"type": "record", "name": "A", "fields": []}'),
    "protobuf-value": Schema("PROTOBUF", 'syntax = "proto3"; message M { string name = 1; }'),
    "json-value": Schema("JSON", '{"type": "object", "properties": {"name": {"type": "string"}}}'),
}


def run(place: Place) -> list[Check]:
    checks = Checks()
    topic = f"{place.prefix}-journal"
    bootstrap = place.server.bootstrap
    ids: dict[str, int] = {}

    def client() -> Client:  # without what the one before has cached
        return Client(Registry(registry.url))

    def register() -> None:
        for subject, schema in SCHEMAS.items():
            ids[subject] = client().register(subject, schema)

    def journal() -> None:
        if len(read(bootstrap, topic)) < len(SCHEMAS):
            raise Unexpected(f"{topic} has fewer records than there are schemas")

    def killed() -> None:
        registry.kill()
        registry.start()
        for subject, schema in SCHEMAS.items():
            same([client().latest(subject).id], [ids[subject]])
            same([client().by_id(ids[subject]).kind], [schema.kind])

    with SchemaRegistry(place.directory, kafka=bootstrap, topic=topic) as registry:
        checks.run("registers", register)
        checks.run("journal", journal)
        checks.run("survives kill -9", killed)
    return checks.found


CASE = Case("schema-registry", f"Apicurio Registry {VERSION}, stored in Kafka", run,
            checks=("registers", "journal", "survives kill -9"))  # fmt: skip
