"""Errors of requests: one sentence each that names broker, API and remedy.

ClientError                  all of them
  AddressError               a bootstrap address that is not host:port
  NoBrokerError              none of the known addresses answers
  UnknownBrokerError         the cluster has no live broker with this id
  UnsupportedApiError        broker and client have no version of the API in common
  UnreachableError           no connection: the request was not sent
  AuthenticationError        the broker refused the credentials, or their mechanism
  DisconnectedError          the connection ended: the request may have been carried out
  AnswerTimeoutError         no answer in time: the request may have been carried out
  UnreadableAnswerError      bytes that are no answer to the request
  BrokerError                the broker answered with an error code
"""

from __future__ import annotations

from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

# Raw numbers, because `==` and `in` on them also hold for codes that kio does not know.
NONE = ErrorCode.none.value


class ClientError(Exception):
    """A request that failed; `str()` is a sentence for a person."""


class AddressError(ClientError):
    pass


class NoBrokerError(ClientError):
    def __init__(self, reasons: str) -> None:
        super().__init__(f"no broker answers: {reasons}")
        self.reasons = reasons  # one sentence per address


class UnknownBrokerError(ClientError):
    pass


class UnsupportedApiError(ClientError):
    pass


class UnreachableError(ClientError):
    pass


class AuthenticationError(ClientError):
    pass


class DisconnectedError(ClientError):
    pass


class AnswerTimeoutError(ClientError):
    pass


class UnreadableAnswerError(ClientError):
    pass


class BrokerError(ClientError):
    """An error code in an answer, with the broker's own message if it sent one."""

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = int(code)
        self.name = error_name(self.code)
        self.message = message or None
        words = (message or self.name.replace("_", " ").lower()).rstrip(". ")
        super().__init__(f"{words} ({self.name})")

    @property
    def detail(self) -> str:
        """The broker's message, or Kafka's name of the error if it sent none."""
        return self.message or self.name


def error_name(code: int) -> str:
    """41 → NOT_CONTROLLER; ERROR_999 for a code that is not known here."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"ERROR_{code}"


def error_in(item: Struct) -> BrokerError | None:
    """The error of a structure that has `error_code` and, in most APIs, `error_message`."""
    fields = vars(item)
    code = fields["error_code"]
    return None if code == NONE else BrokerError(code, fields.get("error_message"))


def raise_error_in(item: Struct) -> None:
    if (error := error_in(item)) is not None:
        raise error
