"""Filters of a scan: plain text in key or value, and an expression in a process of its own."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, NamedTuple, Self

import msgspec

from odradek_console.records.filter_worker import LENGTH
from odradek_protocol.records.records import Record

EXPRESSION_CHARS_MAX = 2_000
START_S = 15.0  # of the process, on a loaded machine
BATCH_S = 10.0  # for one batch; 30,000 records a second are usual, so a batch takes 20 ms
BATCH_RECORDS = 500


class FilterError(Exception):
    """The error in a filter, as a sentence for the user."""


class Matched(NamedTuple):
    indexes: list[int]
    failed: int  # records for which the expression has no answer; they do not match
    reason: str | None  # of the first of them


class Filter:
    """One expression at work; `close` ends its process. Not safe for threads."""

    def __init__(self, expression: str, batch_s: float = BATCH_S) -> None:
        if len(expression) > EXPRESSION_CHARS_MAX:
            raise FilterError(f"the filter is longer than {EXPRESSION_CHARS_MAX} characters")
        self._batch_s = batch_s
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", "odradek_console.records.filter_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},  # no settings and no secrets of the console
            start_new_session=True,
        )
        try:
            (refusal,) = self._exchange(expression, START_S)
            if refusal is not None:
                raise FilterError(f"the filter is not valid: {refusal}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            try:
                stream.close()
            except OSError:  # what was not written yet has no reader any more
                continue

    def match(self, partition: int, records: Sequence[Record]) -> Matched:
        rows = [
            (partition, r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records
        ]
        indexes, failed, reason = self._exchange(rows, self._batch_s)
        return Matched(indexes, failed, reason)

    def _exchange(self, message: object, limit_s: float) -> list:  # type: ignore[type-arg]
        data = msgspec.msgpack.encode(message)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(LENGTH.pack(len(data)) + data)
            self._process.stdin.flush()
            deadline = time.monotonic() + limit_s
            (length,) = LENGTH.unpack(_read(self._process.stdout, LENGTH.size, deadline))
            answer = _read(self._process.stdout, length, deadline)
        except TimeoutError:
            raise FilterError(
                f"the filter took more than {limit_s:g} s for {BATCH_RECORDS} records; make it "
                "simpler (nested all() and map() are slow)"
            ) from None
        except (OSError, EOFError):
            raise FilterError(
                "the filter needed too much memory or time and was ended; make it simpler"
            ) from None
        found: list = msgspec.msgpack.decode(answer)  # type: ignore[type-arg]
        return found


def _read(stream: IO[bytes], count: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < count:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([stream], [], [], left_s)[0]:
            raise TimeoutError
        part = stream.read1(count - len(data))  # type: ignore[attr-defined]
        if not part:
            raise EOFError
        data += part
    return bytes(data)
