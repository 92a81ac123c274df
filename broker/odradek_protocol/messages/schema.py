"""kio's description of a message's structures, in the form that our codecs use.

kio has one frozen dataclass per structure and version. `fields_of` turns it into a list of
`MessageField`; `decode.py` and `encode.py` compile readers and writers from that. kio's own native
reader is not used on received bytes: it allocates as much as an array's count says, and a 20-byte
frame with a count of 2**31 aborts the process (adr/0003).
"""

import dataclasses
from datetime import datetime, timedelta
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from odradek_protocol.messages.struct import Struct

Kind = Literal["request", "response"]

MILLISECOND = timedelta(milliseconds=1)

IMPLICIT_DEFAULTS: dict[str, object] = {
    "bool": False,
    "bytes": b"",
    "float64": 0.0,
    "records": None,
    "string": "",
    "uuid": None,  # the zero UUID
}


class MessageField(NamedTuple):
    name: str
    kafka_type: str  # "int32", "string", …; "struct" for a nested structure
    struct_class: type | None  # kio's class of a nested structure
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any


def load_class(name: str, version: int, kind: Kind) -> type:
    """kio's class of a message, e.g. ("metadata", 12, "request") → MetadataRequest."""
    module = import_module(f"kio.schema.{name}.v{version}.{kind}")
    class_name = name.title().replace("_", "") + kind.title()
    cls = getattr(module, class_name)
    assert isinstance(cls, type)
    return cls


def is_flexible(cls: type) -> bool:
    return bool(cls.__flexible__)  # type: ignore[attr-defined]


def fields_of(cls: type) -> list[MessageField]:
    """The fields in the order in which they are written (tagged ones anywhere among them)."""
    return [_field(field) for field in dataclasses.fields(cls)]


def _field(field: "dataclasses.Field[Any]") -> MessageField:
    kind, nullable = _without_none(field.type)
    is_array = get_origin(kind) is tuple
    if is_array:
        kind, _ = _without_none(get_args(kind)[0])
    struct_class = kind if dataclasses.is_dataclass(kind) and isinstance(kind, type) else None
    kafka_type = field.metadata.get("kafka_type", "struct")
    result = MessageField(
        field.name, kafka_type, struct_class, is_array, nullable, field.metadata.get("tag"), None
    )
    if field.default is not dataclasses.MISSING:
        return result._replace(default=_plain(field.default))
    return result._replace(default=_implicit_default(result))


def _without_none(kind: Any) -> tuple[Any, bool]:
    """(X, True) for `X | None`, else (kind, False)."""
    if get_origin(kind) is not UnionType:
        return kind, False
    (inner,) = (arg for arg in get_args(kind) if arg is not NoneType)
    return inner, True


def _plain(value: Any) -> Any:
    """A default of kio's in the form that handlers see: Struct, integers in milliseconds."""
    if dataclasses.is_dataclass(value):
        return Struct(**{f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)})
    if isinstance(value, timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return value


def _implicit_default(field: MessageField) -> Any:
    """Kafka's default for a field without one: null if nullable, but an array is empty."""
    if field.is_array:
        return ()
    if field.nullable:
        return -1 if field.kafka_type == "datetime_i64" else None
    if field.struct_class is not None:
        return Struct(**{nested.name: nested.default for nested in fields_of(field.struct_class)})
    return IMPLICIT_DEFAULTS.get(field.kafka_type, 0)
