"""The process that evaluates a filter: an expression of CEL, record by record.

    python -I -m odradek_console.records.filter_worker

A filter comes from a user, and one that takes hours is easily written (nested `all` over lists),
so it runs in a process that the console can kill, with limits on memory and CPU and without the
console's environment. Frames on stdin and stdout: 4 bytes of length, msgpack.

    in    the expression                        "value.amount > 10.0 && key == 'a'"
    out   [null] or [why it is refused]
    in    records: [[partition, offset, timestamp_ms, key, value, headers], …]
    out   [indexes that match, number that could not be evaluated, the first reason]

In an expression: `key` and `text` (strings; bytes that are not UTF-8 have U+FFFD), `value` (the
JSON document of the value, or its text), `headers` (map of strings), `partition`, `offset`,
`timestamp` (of CEL), `size` of the value in bytes; `tombstone` is true for a null value.
"""

from __future__ import annotations

import json
import os
import resource
import struct
from datetime import UTC, datetime
from typing import Any, BinaryIO

import cel
import msgspec

MEMORY_BYTES_MAX = 2 << 30  # of address space; an idle worker has 0.3 GB of it
CPU_S_MAX = 600
LENGTH = struct.Struct(">I")

VARIABLES = ("key", "text", "value", "headers", "partition", "offset", "timestamp", "size",
             "tombstone")  # fmt: skip

Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]


def variables_of(row: Row) -> dict[str, Any]:
    partition, offset, timestamp_ms, key, value, headers = row
    text = _text(value)
    document: Any = text
    if value:
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            document = text
    return {
        "key": _text(key),
        "text": text,
        "value": document,
        "headers": {_text(name): _text(data) for name, data in headers},
        "partition": partition,
        "offset": offset,
        "timestamp": _moment(timestamp_ms),
        "size": len(value or b""),
        "tombstone": value is None,
    }


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode(errors="replace")


def _moment(timestamp_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def compiled(expression: str) -> tuple[Any, str | None]:
    """The program, or why it is refused."""
    try:
        program = cel.compile(expression)
    except ValueError as error:
        return None, " ".join(str(error).split("ERROR: <input>:")[-1].split("\n")[0].split())
    try:
        program.execute(variables_of((0, 0, 0, b"", b"{}", [])))
    except RuntimeError as error:
        if "Undefined" in str(error):
            return None, f"{str(error).split('.')[0]}; known are {', '.join(VARIABLES)}"
    except Exception:  # a field that this empty record lacks: others may have it
        return program, None
    return program, None


def matches(program: Any, rows: list[Row]) -> tuple[list[int], int, str | None]:
    found, failed, first = [], 0, None
    for index, row in enumerate(rows):
        try:
            if program.execute(variables_of(row)) is True:
                found.append(index)
        except Exception as error:  # whatever a record makes of a user's expression
            failed += 1
            words = str(error)[:200]
            first = first or (f"no field {words}" if isinstance(error, KeyError) else words)
    return found, failed, first


def read_frame(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return stream.read(LENGTH.unpack(head)[0])


def write_frame(stream: BinaryIO, data: bytes) -> None:
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rows_of = msgspec.msgpack.Decoder(list[Row])
    with os.fdopen(0, "rb") as source, os.fdopen(1, "wb") as target:
        expression = read_frame(source)
        if expression is None:
            return
        program, refusal = compiled(msgspec.msgpack.decode(expression, type=str))
        write_frame(target, msgspec.msgpack.encode([refusal]))
        while refusal is None and (frame := read_frame(source)) is not None:
            answer = matches(program, rows_of.decode(frame))
            write_frame(target, msgspec.msgpack.encode(answer))


if __name__ == "__main__":
    main()
