"""Connections to a cluster (librdkafka through confluent-kafka), with errors a user can act on."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from odradek_cli.errors import CliError

TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0

# librdkafka repeats every failed connection on stderr; our one sentence says it once.
QUIET = {"log_level": 2, "socket.connection.setup.timeout.ms": 5_000}

Answer = TypeVar("Answer")


def settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    """librdkafka's settings; keyword names have _ for dots."""
    return {
        "bootstrap.servers": bootstrap,
        **QUIET,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def connect(bootstrap: str, timeout_s: float = CONNECT_TIMEOUT_S) -> AdminClient:
    """An admin client that has reached a broker; keep it as long as its answers are awaited."""
    admin = AdminClient(settings(bootstrap))
    try:
        admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise CliError(f"--bootstrap {bootstrap}: no broker answers there") from error
    return admin


def settle(what: str, answer: Future[Answer]) -> Answer:
    """Waits for one answer; an error of the broker becomes a sentence about `what`."""
    try:
        return answer.result(TIMEOUT_S)
    except KafkaException as error:
        raise CliError(f"{what}: {reason(error)}") from error
    except TimeoutError as error:
        raise CliError(f"{what}: no answer within {TIMEOUT_S:.0f} s") from error


def reason(error: KafkaException) -> str:
    """The broker's own words, and Kafka's name of the error for looking it up."""
    kafka_error = error.args[0]
    return f"{kafka_error.str().rstrip('.')} ({kafka_error.name()})"
