"""Reads the numbers of a push: OpenTelemetry's MetricsData v1, the parts that clients send.

    MetricsData 1 → ResourceMetrics 2 → ScopeMetrics 2 → Metric {1 name, 5 gauge, 7 sum}
    gauge, sum 1 → NumberDataPoint {4 double, 6 sfixed64, 7 attributes}
    attributes → KeyValue {1 key, 2 AnyValue {1 string, 2 bool, 3 int, 4 double}}

A field is a varint `number << 3 | type` and its value; type 2 has its length before it. Example:
the name "a" of a metric is 0a 01 61. Unknown fields, histograms and summaries are skipped. The
input is hostile: everything is bounded, and any mistake is a DecodeError.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from odradek_protocol.errors import DecodeError

# A Java producer has some 300 numbers with all its metrics, one per topic and partition besides.
POINTS_MAX = 2_000
TEXT_BYTES_MAX = 256  # of a name, or of an attribute
ATTRIBUTES_MAX = 16
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_double, _int64 = struct.Struct("<d"), struct.Struct("<q")


class Point(NamedTuple):
    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float


def read_points(data: bytes) -> list[Point]:
    """At most POINTS_MAX numbers."""
    found: list[Point] = []
    try:
        for metric in _nested(data, (1, 2, 2)):
            name = ""
            for number, _, value in _fields(metric):
                if number == 1:
                    name = _text(value)
                elif number in (5, 7) and isinstance(value, bytes):
                    for point in _nested(value, (1,)):
                        if len(found) == POINTS_MAX:
                            return found
                        found += _point(name, point)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"telemetry: {error}") from None
    return found


def _nested(data: bytes, path: tuple[int, ...]) -> Iterator[bytes]:
    """The messages at the end of a path of field numbers."""
    for number, _, value in _fields(data):
        if number != path[0] or not isinstance(value, bytes):
            continue
        if len(path) == 1:
            yield value
        else:
            yield from _nested(value, path[1:])


def _point(name: str, data: bytes) -> list[Point]:
    attributes: list[tuple[str, str]] = []
    value: float | None = None
    for number, kind, raw in _fields(data):
        if number == 4 and kind == FIXED64 and isinstance(raw, bytes):
            value = _double.unpack(raw)[0]
        elif number == 6 and kind == FIXED64 and isinstance(raw, bytes):
            value = float(_int64.unpack(raw)[0])
        elif number == 7 and isinstance(raw, bytes) and len(attributes) < ATTRIBUTES_MAX:
            attributes.append(_attribute(raw))
    return [] if value is None else [Point(name, tuple(sorted(attributes)), value)]


def _attribute(data: bytes) -> tuple[str, str]:
    key = text = ""
    for number, _, value in _fields(data):
        if number == 1:
            key = _text(value)
        elif number == 2 and isinstance(value, bytes):
            for kind, _, inner in _fields(value):
                if kind == 1:
                    text = _text(inner)
                elif kind in (2, 3) and isinstance(inner, int):
                    text = str(inner if inner < 1 << 63 else inner - (1 << 64))
                elif kind == 4 and isinstance(inner, bytes):
                    text = str(_double.unpack(inner)[0])
    return key, text


def _text(value: int | bytes) -> str:
    if not isinstance(value, bytes):
        raise DecodeError("telemetry: a text is a number")
    return value[:TEXT_BYTES_MAX].decode(errors="replace")


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(number, type, value); a fixed-size value as its bytes."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, kind, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise DecodeError(f"telemetry: wire type {kind}")
        if size > end - at:
            raise DecodeError(f"telemetry: a field of {size} bytes in {end - at}")
        yield tag >> 3, kind, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift >= 70:
            raise DecodeError("telemetry: a varint of more than 10 bytes")
