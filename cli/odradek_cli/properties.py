"""Client settings in Java's properties format, as kafka-*.sh take with --command-config.

    bootstrap.servers=kafka-1:9092,kafka-2:9092
    client.id = reports
    request.timeout.ms: 10000

Settings of producers and consumers are ignored, as Kafka's own tools do; those of TLS and SASL are
used or refused, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from odradek_cli.errors import UsageError
from odradek_cli.escapes import unescape

BYTES_MAX = 1 << 20  # refuses a data file that was given by mistake
HIDDEN = "(hidden)"

_PAIR = re.compile(r"((?:\\.|[^\\\s=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_SECRET = re.compile(r"password|secret|jaas|token|credential|\.key$|keystore\.key", re.IGNORECASE)


def read_properties(option: str, path: Path) -> dict[str, str]:
    """The settings of a file; errors name the option that named the file."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise UsageError(f"{option} {path}: too large for a file of settings (over 1 MiB)")
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {path}: is not a text file") from error
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    found = {}
    for line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        assert match is not None  # the pattern matches every line
        found[unescape(match[1])] = unescape(match[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; one that ends in an odd number of backslashes goes on below."""
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def shown(name: str, value: str) -> str:
    """The value as it may be printed: secrets are hidden."""
    return HIDDEN if _SECRET.search(name) else value
