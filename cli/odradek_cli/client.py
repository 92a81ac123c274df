"""Connections to a cluster (odradek_protocol.client), with errors a user can act on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from odradek_cli import session
from odradek_cli.errors import CliError, UsageError
from odradek_cli.output import print_json
from odradek_protocol.client.deadline import Deadline
from odradek_protocol.client.errors import AddressError, ClientError, NoBrokerError
from odradek_protocol.client.kafka_client import KafkaClient
from odradek_protocol.client.settings import ClientSettings

TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0

Answer = TypeVar("Answer")


class NoTopicError(CliError):
    """The topic does not exist."""


def open_client(bootstrap: str, timeout_s: float | None = None) -> KafkaClient:
    """A client that has reached a broker; the caller closes it."""
    now = session.current()
    if timeout_s is None:
        timeout_s = now.milliseconds("socket.connection.setup.timeout.ms", CONNECT_TIMEOUT_S)
    request_s = now.milliseconds("request.timeout.ms", TIMEOUT_S)
    try:
        client = KafkaClient(
            bootstrap,
            ClientSettings(
                client_id=now.settings.get("client.id", "odradek-cli"),
                connect_timeout_s=timeout_s,
                request_timeout_s=request_s,
                deadline_s=request_s,
                security=now.security(),
            ),
        )
        client.find_any(Deadline(timeout_s))
    except AddressError as error:
        raise UsageError(f"--bootstrap: {error}") from error
    except NoBrokerError as error:
        message = f"--bootstrap {bootstrap}: no broker answers there: {error.reasons}"
        raise CliError(message) from error
    return client


@contextmanager
def connect(bootstrap: str, timeout_s: float | None = None) -> Iterator[KafkaClient]:
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


def check_topic(client: KafkaClient, topic: str, remedy: str = "") -> None:
    """A topic that does not exist is an error at once; the message names one like it."""
    import difflib

    found = client.metadata([topic]).topics[topic]
    if found.error is None:
        return
    if found.error.name != "UNKNOWN_TOPIC_OR_PARTITION":
        raise CliError(f"topic {topic}: {found.error}")
    close = difflib.get_close_matches(topic, client.metadata().topics, 1)
    hint = f" (there is {close[0]})" if close else ""
    raise NoTopicError(f"topic {topic}: there is no such topic{hint}{remedy}")


def report_deleted(
    kind: str, names: Sequence[str], refused: Mapping[str, ClientError], as_json: bool
) -> None:
    """Prints what was deleted; then the first refusal becomes an error: `kind` orders: …"""
    deleted = [name for name in names if name not in refused]
    if not as_json:
        for name in deleted:
            print(f"Deleted {kind} {name}.")
    raise_first(kind, refused)
    if as_json:
        print_json({"deleted": deleted})


def raise_first(kind: str, refused: Mapping[str, ClientError]) -> None:
    """Raises the first refusal, as a sentence: raise_first("topic", {"orders": error})."""
    for name, error in refused.items():
        raise CliError(f"{kind} {name}: {error}") from error
