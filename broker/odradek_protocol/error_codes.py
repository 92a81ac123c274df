"""Failures that have a Kafka error code, e.g. `KafkaError(ErrorCode.corrupt_message, "CRC …")`.

A layer below the handlers raises `KafkaError`; the handler turns it into the error fields of its
response. Any other exception that leaves a handler is our bug: it is logged and answered with
UNKNOWN_SERVER_ERROR. Bytes that cannot be decoded are a `DecodeError` (errors.py), which has no
error code and needs no kio.
"""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError"]


class KafkaError(Exception):
    """A request (or a part of it) cannot be served; the client gets `code`."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or None
