"""Types that sources, steps and sinks of a SparkPipeline share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from odradek_api.base import FreeForm, NonEmpty, Spec

Name = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$", max_length=63)]  # of a view in SQL
Sql = Annotated[str, Meta(min_length=1, max_length=65536)]
Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Duration = Annotated[
    str, Meta(pattern=r"^[0-9]+ (milliseconds?|seconds?|minutes?|hours?|days?)$", max_length=40)
]

_UNITS_S = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}


def seconds_of(duration: str) -> float:
    """ "30 seconds" → 30.0"""
    number, _, unit = duration.partition(" ")
    return int(number) * _UNITS_S[unit.removesuffix("s")]


class Kafka(Spec, frozen=True, kw_only=True):
    """A Kafka cluster that no KafkaCluster describes, or client settings for one that does."""

    bootstrap_servers: Annotated[
        NonEmpty | None,
        Meta(
            description="Addresses of the cluster, for example kafka-0:9092,kafka-1:9092. Default: "
            "those of the KafkaCluster that `cluster` names."
        ),
    ] = None
    config: Annotated[
        FreeForm,
        Meta(
            description="Settings of Kafka's clients, for example {max.poll.records: 1000}. A "
            "value ${env:NAME} is read from the driver's environment. Default: none."
        ),
    ] = field(default_factory=dict)


class UserRef(Spec, frozen=True, kw_only=True):
    """Refers to a KafkaUser in the namespace of the pipeline."""

    name: Annotated[
        str, Meta(min_length=1, max_length=253, description="metadata.name of the KafkaUser.")
    ]


class Watermark(Spec, frozen=True, kw_only=True):
    """How long results wait for late records. Records that are later are dropped."""

    column: Annotated[NonEmpty, Meta(description="Column with the time of the event.")]
    delay: Annotated[
        Duration,
        Meta(description="How late a record may be, for example 10 seconds or 1 hour."),
    ]


class Dedup(Spec, frozen=True, kw_only=True):
    """Drops records whose key columns have been seen before."""

    by: Annotated[
        list[NonEmpty],
        Meta(min_length=1, max_length=32, description="Key columns, for example [order_id]."),
    ]
