"""Errors of a Kafka for tests, besides the errors of requests (ClientError)."""

from __future__ import annotations


class UnsupportedError(Exception):
    """The engine, or this version, cannot do what was asked; the text says what can."""
