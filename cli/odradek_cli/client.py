"""Connections to a cluster (odradek_protocol.client), with errors a user can act on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from odradek_cli.errors import CliError
from odradek_protocol.client.deadline import Deadline
from odradek_protocol.client.errors import AddressError, ClientError, NoBrokerError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.settings import ClientSettings

TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0

Answer = TypeVar("Answer")


def open_client(bootstrap: str, timeout_s: float = CONNECT_TIMEOUT_S) -> KafkaClient:
    """A client that has reached a broker; the caller closes it."""
    try:
        client = KafkaClient(
            bootstrap,
            ClientSettings(
                client_id="odradek-cli",
                connect_timeout_s=timeout_s,
                request_timeout_s=TIMEOUT_S,
                deadline_s=TIMEOUT_S,
            ),
        )
        client.find_any(Deadline(timeout_s))
    except AddressError as error:
        raise CliError(f"--bootstrap: {error}") from error
    except NoBrokerError as error:
        message = f"--bootstrap {bootstrap}: no broker answers there: {error.reasons}"
        raise CliError(message) from error
    return client


@contextmanager
def connect(bootstrap: str, timeout_s: float = CONNECT_TIMEOUT_S) -> Iterator[KafkaClient]:
    """The same for a block of code, in which errors of the client become sentences."""
    with open_client(bootstrap, timeout_s) as client:
        try:
            yield client
        except ClientError as error:
            raise CliError(str(error)) from error


@contextmanager
def about(what: str) -> Iterator[None]:
    """Errors of the client in this block become a sentence about `what`."""
    try:
        yield
    except ClientError as error:
        raise CliError(f"{what}: {error}") from error


def found(what: str, answer: Answer | ClientError) -> Answer:
    """An answer; an error in its place becomes a sentence about `what`."""
    if isinstance(answer, ClientError):
        raise CliError(f"{what}: {answer}") from answer
    return answer


def raise_first(kind: str, refused: Mapping[str, ClientError]) -> None:
    """The first of what was refused, as a sentence: raise_first("topic", {"orders": error})."""
    for name, error in refused.items():
        raise CliError(f"{kind} {name}: {error}") from error
