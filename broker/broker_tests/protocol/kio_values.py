"""Random instances of kio's classes, and their translation to our `Struct`s.

kio is the reference of the codec tests: what it writes we must read, and the other way round.
"""

import dataclasses
import io
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from odradek_protocol.messages.schema import Kind, MessageField, fields_of, load_class
from odradek_protocol.messages.struct import Struct

ERROR_CODES = list(ErrorCode)
INTEGER_BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63}
TEXTS = ["", "a", "orders", "ключ", "x" * 127, "y" * 200, "日本"]


def random_instance(cls: type, rng: random.Random) -> Any:
    """An instance of kio's class with random values in every field."""
    kwargs = {}
    for field in fields_of(cls):
        if field.tag is not None and rng.random() < 0.5:
            continue  # left at its default
        kwargs[field.name] = _value(field, rng)
    for attribute in dataclasses.fields(cls):
        if attribute.name not in kwargs and attribute.default is dataclasses.MISSING:
            (spec,) = (f for f in fields_of(cls) if f.name == attribute.name)
            kwargs[attribute.name] = _value(spec, rng)
    return cls(**kwargs)


def _value(field: MessageField, rng: random.Random) -> Any:
    if field.nullable and field.tag is None and rng.random() < 0.25:
        return None
    if field.is_array:
        return tuple(_item(field, rng) for _ in range(rng.choice([0, 1, 1, 2, 3])))
    return _item(field, rng)


def _item(field: MessageField, rng: random.Random) -> Any:
    kind = field.kafka_type
    if field.struct_class is not None:
        return random_instance(field.struct_class, rng)
    if kind in INTEGER_BITS:
        bits = INTEGER_BITS[kind]
        number = rng.choice([0, 1, rng.getrandbits(bits), 2**bits - 1])
        return number if kind == "uint16" or rng.random() < 0.7 else -number - 1
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.choice([0.0, 1.5, rng.random()])
    if kind == "string":
        return rng.choice(TEXTS)
    if kind in ("bytes", "records"):
        return rng.randbytes(rng.choice([0, 1, 20, 200]))
    if kind == "uuid":
        return rng.choice([None, UUID(int=rng.getrandbits(128))])
    if kind == "error_code":
        return rng.choice(ERROR_CODES)
    if kind in ("timedelta_i32", "timedelta_i64"):
        return timedelta(milliseconds=rng.choice([0, -1, rng.getrandbits(31)]))
    assert kind == "datetime_i64", kind
    return datetime.fromtimestamp(rng.randrange(2**32), UTC)


def to_struct(instance: Any) -> Any:
    """The same value as handlers write it: Struct, lists, integers in milliseconds."""
    if dataclasses.is_dataclass(instance):
        values = {
            field.name: to_struct(getattr(instance, field.name))
            for field in dataclasses.fields(instance)
        }
        for field in fields_of(type(instance)):
            if field.kafka_type == "datetime_i64" and values[field.name] is None:
                values[field.name] = -1
        return Struct(**values)
    if isinstance(instance, tuple):
        return [to_struct(item) for item in instance]
    if isinstance(instance, timedelta):
        return instance // timedelta(milliseconds=1)
    if isinstance(instance, datetime):
        return round(instance.timestamp() * 1000)
    return instance


def kio_bytes(instance: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(instance))(buffer, instance)
    return buffer.getvalue()


def without_missing(struct: Struct, cls: type) -> Struct:
    """`struct` cut down to the fields that `cls` has, at every level."""
    values = {}
    for field in fields_of(cls):
        value = getattr(struct, field.name)
        if field.struct_class is not None and value is not None:
            if field.is_array:
                value = [without_missing(item, field.struct_class) for item in value]
            else:
                value = without_missing(value, field.struct_class)
        elif field.is_array and value is not None:
            value = list(value)
        values[field.name] = value
    return Struct(**values)


def load(name: str, version: int, kind: Kind) -> type:
    return load_class(name, version, kind)
