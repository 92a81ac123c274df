"""Lookups of a SparkPipeline: rows that steps join with, from a topic, a table or a database.

A lookup is no source: its rows start no batch. They are kept in memory and read again every
`refresh`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import ClusterRef, FreeForm, NonEmpty, Spec, TopicName
from odradek_api.pipeline.common import Duration, Kafka, Name, Sql, UserRef
from odradek_api.pipeline.sources import Format

Problems = Iterator[tuple[str, str]]  # field relative to spec, sentence

LOOKUP_KINDS = ("topic", "table", "jdbc")


class TopicLookup(Spec, frozen=True, kw_only=True):
    """The newest record of each key of a topic, usually of a compacted one."""

    name: Annotated[TopicName, Meta(description="Kafka topic.")]
    format: Annotated[
        Format, Meta(description="How values are parsed into columns. Default: raw.")
    ] = field(default_factory=Format)


class TableLookup(Spec, frozen=True, kw_only=True):
    """A directory of Parquet files, or a table of Delta Lake."""

    path: Annotated[
        NonEmpty,
        Meta(description="Its directory, for example /data/customers or s3a://bucket/customers."),
    ]
    format: Annotated[
        Literal["parquet", "delta"],
        Meta(description="Parquet files, or a table of Delta Lake. Default: parquet."),
    ] = "parquet"


class JdbcLookup(Spec, frozen=True, kw_only=True):
    """A table or query of a database. Its JDBC driver is not part of the image."""

    url: Annotated[
        NonEmpty,
        Meta(
            description="For example jdbc:postgresql://db:5432/shop. It contains no user and no "
            "password."
        ),
    ]
    table: Annotated[
        NonEmpty | None,
        Meta(description="Table to read, for example public.customers. Default: query is given."),
    ] = None
    query: Annotated[
        Sql | None,
        Meta(
            description="SELECT that the database runs. Default: table is given, and all of it is "
            "read."
        ),
    ] = None
    user: Annotated[
        NonEmpty | None,
        Meta(description="User; ${env:NAME} is read from the driver's environment. Default: none."),
    ] = None
    password: Annotated[
        NonEmpty | None,
        Meta(
            description="Its password, as ${env:NAME}: read from the driver's environment. "
            "Default: none."
        ),
    ] = None
    driver: Annotated[
        NonEmpty | None,
        Meta(
            description="Class of the JDBC driver, for example org.postgresql.Driver. Default: "
            "found by the URL."
        ),
    ] = None
    options: Annotated[
        FreeForm,
        Meta(
            description='Other options of Spark\'s JDBC source, for example {fetchsize: "1000"}. '
            "Default: none."
        ),
    ] = field(default_factory=dict)


class Lookup(Spec, frozen=True, kw_only=True):
    """A view that steps join with: exactly one of topic, table and jdbc."""

    name: Annotated[Name, Meta(description="Name of the view that steps read in SQL.")]
    topic: Annotated[
        TopicLookup | None,
        Meta(
            description="The newest record of each key; a key whose newest record has no value has "
            "no row. Default: the lookup is a table or jdbc."
        ),
    ] = None
    table: Annotated[
        TableLookup | None,
        Meta(
            description="Parquet files or a table of Delta Lake. Default: the lookup is a topic or "
            "jdbc."
        ),
    ] = None
    jdbc: Annotated[
        JdbcLookup | None,
        Meta(description="Rows of a database. Default: the lookup is a topic or table."),
    ] = None
    cluster: Annotated[
        ClusterRef | None,
        Meta(description="KafkaCluster of the topic. Default: the pipeline's cluster."),
    ] = None
    user: Annotated[
        UserRef | None,
        Meta(
            description="KafkaUser of this lookup, for a cluster that differs from the pipeline's. "
            "Default: the pipeline's."
        ),
    ] = None
    kafka: Annotated[
        Kafka,
        Meta(description="Addresses and client settings. Default: those of the pipeline."),
    ] = field(default_factory=Kafka)
    refresh: Annotated[
        Duration,
        Meta(
            description="How long rows are kept in memory before all of them are read again, for "
            "example 10 minutes. Default: 1 minute."
        ),
    ] = "1 minute"


def lookup_kinds(lookup: Lookup) -> list[str]:
    return [kind for kind in LOOKUP_KINDS if getattr(lookup, kind) is not None]


def jdbc_problems(at: str, jdbc: JdbcLookup) -> Problems:
    if (jdbc.table is None) == (jdbc.query is None):
        yield at, "needs exactly one of table and query"
    if not jdbc.url.startswith("jdbc:"):
        yield f"{at}.url", "must begin with jdbc:, for example jdbc:postgresql://db:5432/shop"
    elif "password=" in jdbc.url.lower() or "@" in jdbc.url.partition("//")[2].partition("/")[0]:
        yield f"{at}.url", "contains a login: put it into user and password"
    if jdbc.password is not None and not (
        jdbc.password.startswith("${env:") and jdbc.password.endswith("}")
    ):
        yield f"{at}.password", "is a secret: name a variable, as ${env:NAME}"
    for name in sorted(jdbc.options.keys() & {"url", "dbtable", "query", "user", "password"}):
        yield f"{at}.options[{name}]", "has a field of its own"
