r"""Java's `.properties` syntax, as `server.properties` files are written in it.

    # a comment; ! starts one too
    log.retention.hours = 24
    listeners=PLAINTEXT://:9092,\
              INTERNAL://:9093

`=`, `:` or blanks end a key; a backslash at the end of a line continues it (leading blanks of
the next line are dropped); `\t \n \r \f \uXXXX` are escapes, any other escaped character is
itself. A later line for the same key wins.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


_HEXADECIMAL = re.compile("[0-9a-fA-F]{4}")


class MalformedEscapeError(Exception):
    """A backslash and a u without four hexadecimal digits, which Java refuses as well."""

    def __init__(self, line: int) -> None:
        super().__init__(r"\u needs four hexadecimal digits; write \\ for a backslash")
        self.line = line


class Property(NamedTuple):
    line: int  # where it starts, counted from 1
    name: str
    value: str


def parse_properties(text: str) -> Iterator[Property]:
    """MalformedEscapeError names the line; everything else is a property."""
    for line_number, line in _logical_lines(text):
        name, value = _split(line)
        try:
            yield Property(line_number, _unescape(name), _unescape(value))
        except ValueError:
            raise MalformedEscapeError(line_number) from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    joined, start = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANKS)
        if not start:
            if not line or line[0] in "#!":
                continue
            start = number
        trailing_backslashes = len(line) - len(line.rstrip("\\"))
        if trailing_backslashes % 2:
            joined += line[:-1]
            continue
        yield start, joined + line
        joined, start = "", 0
    if start:
        yield start, joined


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped."""
    at, escaped = 0, False
    while at < len(line) and (escaped or line[at] not in "=:" + _BLANKS):
        escaped = not escaped and line[at] == "\\"
        at += 1
    rest = line[at:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:at], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, at = [], 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            out.append(text[at])
            at += 1
        elif text[at + 1] == "u":
            digits = text[at + 2 : at + 6]
            if not _HEXADECIMAL.fullmatch(digits):
                raise ValueError(digits)
            out.append(chr(int(digits, 16)))
            at += 6
        else:
            out.append(_ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    return "".join(out)
