"""Settings and errors of librdkafka (confluent-kafka), with which the CLI produces and consumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import KafkaException

TIMEOUT_S = 30.0

# librdkafka logs every failed connection to stderr; one sentence of ours is enough.
QUIET = {"log_level": 2, "socket.connection.setup.timeout.ms": 5_000}


def settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    """librdkafka's settings; keyword names have _ for dots."""
    return {
        "bootstrap.servers": bootstrap,
        **QUIET,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def reason(error: KafkaException) -> str:
    """The broker's own words, and Kafka's name of the error for looking it up."""
    kafka_error = error.args[0]
    return f"{kafka_error.str().rstrip('.')} ({kafka_error.name()})"
