r"""Java's `.properties` syntax, as `server.properties` files are written in it.

    # a comment; ! starts one too
    log.retention.hours = 24
    listeners=PLAINTEXT://:9092,\
              INTERNAL://:9093

`=`, `:` or blanks end a key; a backslash at the end of a line continues it (leading blanks of
the next line are dropped); `\t \n \r \f \uXXXX` are escapes, any other escaped character is
itself. A later line for the same key wins.
"""

from collections.abc import Iterator
from typing import NamedTuple

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    line: int  # where it starts, counted from 1
    name: str
    value: str


def parse_properties(text: str) -> Iterator[Property]:
    for line_number, line in _logical_lines(text):
        name, value = _split(line)
        yield Property(line_number, _unescape(name), _unescape(value))


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
            out.append(chr(int(text[at + 2 : at + 6], 16)))
            at += 6
        else:
            out.append(_ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    return "".join(out)
