"""Failures that have a Kafka error code.

A layer below the handlers raises `KafkaError`; the handler turns it into the error fields of
its response. Anything else that escapes a handler is our bug: logged, answered as
UNKNOWN_SERVER_ERROR.
"""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError"]


class KafkaError(Exception):
    """A request (or a part of it) cannot be served; `code` is what the client sees."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or None
