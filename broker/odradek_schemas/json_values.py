"""Decoded values as JSON text, for terminals and for Spark's from_json.

Times are ISO 8601, decimals and UUIDs strings, bytes base64.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID


def to_json(value: object) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def plain(value: object) -> Any:
    """The same value out of dicts, lists, texts and numbers only."""
    return json.loads(to_json(value))


def _plain(value: Any) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
