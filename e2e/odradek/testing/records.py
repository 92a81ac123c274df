"""Records as a test writes and compares them, and the text of a difference.

    Record("a", key="k") == Record(b"a", key=b"k")     # text is UTF-8
    kafka.read("orders") == ["a", "b"]                 # plain values: keys and headers may be any
    kafka.read("orders") == [Record("a", key="1"), Record("b", key="2")]

Topic, partition, offset and timestamp of a record that was read are there to look at; they do not
take part in comparisons.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Data: TypeAlias = str | bytes | None


def as_bytes(data: Data) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


class Record:
    """One record. `value` None is a tombstone; headers keep their order and may repeat."""

    __slots__ = ("headers", "key", "offset", "partition", "timestamp_ms", "topic", "value")

    def __init__(
        self,
        value: Data,
        key: Data = None,
        headers: Mapping[str, Data] | Iterable[tuple[str, Data]] = (),
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self.value = as_bytes(value)
        self.key = as_bytes(key)
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        self.headers = tuple((name, as_bytes(data)) for name, data in pairs)
        self.partition = partition
        self.timestamp_ms = timestamp_ms
        self.topic = ""
        self.offset = -1  # of a record that was read

    @property
    def text(self) -> str:
        """The value as UTF-8; a tombstone has none."""
        if self.value is None:
            raise ValueError(f"{self!r} is a tombstone: it has no value")
        return self.value.decode()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Record):
            return (self.key, self.value, self.headers) == (other.key, other.value, other.headers)
        if other is None or isinstance(other, (str, bytes)):
            return self.value == as_bytes(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)  # as the plain value that it is equal to

    def __repr__(self) -> str:
        parts = [_shown(self.value)]
        if self.key is not None:
            parts.append(f"key={_shown(self.key)}")
        if self.headers:
            shown = ", ".join(f"{name!r}: {_shown(data)}" for name, data in self.headers)
            parts.append(f"headers={{{shown}}}")
        return f"Record({', '.join(parts)})"

    @property
    def place(self) -> str:
        """Where it was read, for messages: "orders-0@17"."""
        return f"{self.topic}-{self.partition}@{self.offset}"


Expected: TypeAlias = Record | str | bytes | None


class Records(list[Record]):
    """The records that were read, in order; `==` with a list of records or of plain values."""

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self]

    @property
    def texts(self) -> list[str]:
        return [record.text for record in self]

    @property
    def keys(self) -> list[bytes | None]:
        return [record.key for record in self]

    def by_partition(self) -> dict[int, Records]:
        found: dict[int, Records] = {}
        for record in self:
            assert record.partition is not None
            found.setdefault(record.partition, Records()).append(record)
        return dict(sorted(found.items()))


@dataclass
class Difference:
    """How what was read differs from what was expected; `str()` is a text for a person."""

    expected: Sequence[Expected]
    found: Sequence[Record]
    ordered: bool = True
    missing: list[Expected] = field(init=False)
    surplus: list[Record] = field(init=False)

    def __post_init__(self) -> None:
        left = list(self.found)
        self.missing = []
        for wanted in self.expected:
            at = next((i for i, record in enumerate(left) if record == wanted), None)
            if at is None:
                self.missing.append(wanted)
            else:
                del left[at]
        self.surplus = left

    def __bool__(self) -> bool:
        """Whether there is one."""
        if self.missing or self.surplus:
            return True
        return self.ordered and list(self.found) != list(self.expected)

    def lines(self) -> list[str]:
        out = [f"expected {len(self.expected)} records, found {len(self.found)}"]
        if not self.missing and not self.surplus:
            out.append("the same records, but in another order")
        out += [f"missing: {_line(wanted)}" for wanted in self.missing]
        out += [f"not expected: {_line(record)} ({record.place})" for record in self.surplus]
        # A plain value that was expected is shown like the record that it is equal to.
        wanted_lines = [
            next((_line(r) for r in self.found if r == wanted), _line(wanted))
            for wanted in self.expected
        ]
        diff = difflib.unified_diff(
            wanted_lines, [_line(r) for r in self.found], "expected", "found", lineterm="", n=2
        )
        return out + list(diff)

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _line(wanted: Expected) -> str:
    return repr(wanted if isinstance(wanted, Record) else Record(wanted))


def _shown(data: bytes | None) -> str:
    """Text where it is text: 'a', b'\\xff', None."""
    if data is None:
        return "None"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return repr(text) if text.isprintable() else repr(data)
