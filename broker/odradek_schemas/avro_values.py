"""JSON values as what an Avro schema takes: the way back of `json_values.to_json`.

    {"page": "/", "at": "1970-01-01T00:00:00+00:00"}     {"page": "/", "at": datetime(1970, 1, 1)}

Times are ISO 8601, decimals strings, bytes base64; numbers are taken as they are. Of a union the
first branch that fits is taken. Defaults are left to the writer.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

Named = Mapping[str, Any]  # schemas by full name

_NUMBERS: dict[str, tuple[type, ...]] = {
    "int": (int,), "long": (int,), "float": (int, float), "double": (int, float),
}  # fmt: skip
_TIMES: dict[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
}


class MisfitError(ValueError):
    """The text names the place in the value and the type of the schema."""


def from_plain(value: Any, schema: Any, named: Named, where: str = "$") -> Any:
    """`schema` as fastavro has parsed it. Raises MisfitError."""
    if isinstance(schema, list):
        return _of_union(value, schema, named, where)
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    if kind in ("record", "error"):
        return _record(value, schema, named, where)
    if kind == "array" and isinstance(value, list):
        items = schema["items"]
        return [from_plain(v, items, named, f"{where}[{i}]") for i, v in enumerate(value)]
    if kind == "map" and isinstance(value, dict):
        values = schema["values"]
        return {k: from_plain(v, values, named, f"{where}.{k}") for k, v in value.items()}
    logical = schema.get("logicalType", "") if isinstance(schema, Mapping) else ""
    return _plain(value, kind, logical, f"{where}: {value!r} is no {logical or kind}")


def _of_union(value: Any, branches: list[Any], named: Named, where: str) -> Any:
    reasons = []
    for branch in branches:
        try:
            return from_plain(value, branch, named, where)
        except MisfitError as error:
            reasons.append(str(error))
    raise MisfitError("; ".join(reasons) or f"{where}: the union is empty")


def _record(value: Any, schema: Mapping[str, Any], named: Named, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MisfitError(f"{where}: {value!r} is no record {schema['name']}")
    fields = {field["name"]: field for field in schema["fields"]}
    if unknown := sorted(value.keys() - fields.keys()):
        raise MisfitError(f"{where}.{unknown[0]}: the record {schema['name']} has no such field")
    for name, field in fields.items():
        if name not in value and "default" not in field:
            raise MisfitError(f"{where}.{name}: is missing")
    return {
        name: from_plain(value[name], field["type"], named, f"{where}.{name}")
        for name, field in fields.items()
        if name in value
    }


def _plain(value: Any, kind: str, logical: str, misfit: str) -> Any:
    """A value without parts."""
    try:
        if kind in ("bytes", "fixed") and logical == "decimal":
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return Decimal(str(value))
        elif kind in ("bytes", "fixed") and isinstance(value, str):
            return base64.b64decode(value, validate=True)
        elif logical in _TIMES and isinstance(value, str):
            return _TIMES[logical](value)
    except (ValueError, InvalidOperation, binascii.Error):
        raise MisfitError(misfit) from None
    fits = (
        (kind == "null" and value is None)
        or (kind == "boolean" and isinstance(value, bool))
        or (kind in ("string", "enum") and isinstance(value, str))
        or (isinstance(value, _NUMBERS.get(kind, ())) and not isinstance(value, bool))
    )
    if not fits:
        raise MisfitError(misfit)
    return value
