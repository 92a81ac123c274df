"""Requests of an API and version with values from `values.pool`. All randomness is `rng`."""

from __future__ import annotations

import random
from typing import Any

from odradek_e2e.diff.values import Round, pool
from odradek_protocol.messages.kio_table import APIS
from odradek_protocol.messages.schema import MessageField, fields_of, load_class
from odradek_protocol.messages.struct import Struct

ODD = 0.12  # share of odd values; about half of the requests have none
TAGGED = 0.3  # share of the tagged fields that are set

# By type, for fields without an entry in `values`.
PLAIN: dict[str, tuple[list[Any], list[Any]]] = {
    "bool": ([False, True], []),
    "int8": ([0, 1], [-1, 99]),
    "int16": ([0, 1], [-1, 99]),
    "uint16": ([0, 1], [99]),
    "int32": ([0, 1], [-1, 99]),
    "int64": ([0, 1], [-1, 99]),
    "timedelta_i32": ([0, 100], [-1]),
    "timedelta_i64": ([0, 100], [-1]),
    "string": (["a", "b"], [""]),
    "bytes": ([b"", b"a"], []),
    "uuid": ([None], []),
    "float64": ([1e6, 0.5], [0.0, -1.0]),
}


def request(round_: Round, api_key: int, version: int, rng: random.Random) -> Struct:
    api = APIS[api_key][0]
    return _struct(round_, api, load_class(api, version, "request"), rng, top=True)


def _struct(round_: Round, api: str, cls: type, rng: random.Random, *, top: bool = False) -> Struct:
    values = {}
    for field in fields_of(cls):
        if field.tag is None or rng.random() < TAGGED:
            values[field.name] = _field(round_, api, field, rng, top)
    return Struct(**values)


def _field(round_: Round, api: str, field: MessageField, rng: random.Random, top: bool) -> Any:
    """Usually one item; inside another list at least one, and no duplicates."""
    if not field.is_array:
        return _one(round_, api, field, rng)
    if field.nullable and rng.random() < ODD:
        return None
    count = rng.choice((1, 1, 1, 1, 2, 0) if top else (1, 1, 1, 2))
    items = [_one(round_, api, field, rng) for _ in range(count)]
    return list({_identity(item): item for item in items}.values())


def _identity(item: Any) -> str:
    """Whether two items are about the same thing, by the first field of a structure."""
    return repr(next(iter(vars(item).values()), None) if isinstance(item, Struct) else item)


def _one(round_: Round, api: str, field: MessageField, rng: random.Random) -> Any:
    if field.struct_class is not None:
        if field.nullable and not field.is_array and rng.random() < 0.5:
            return None
        return _struct(round_, api, field.struct_class, rng)
    # Fields of one name have one type, but for `value`: text of a setting, number of a quota.
    named = pool(round_, api, field.name) if field.kafka_type != "float64" else None
    sane, odd = named or PLAIN[field.kafka_type]
    values = odd if odd and rng.random() < ODD else sane
    if field.is_array or not field.nullable:
        values = [value for value in values if value is not None or field.kafka_type == "uuid"]
    if not values:
        values = PLAIN[field.kafka_type][0]
    return rng.choice(values)
