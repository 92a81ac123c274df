"""Profiles: named clusters in ~/.config/odradek/config.toml (XDG_CONFIG_HOME is respected).

    current = "prod"

    [profiles.prod]
    bootstrap = "kafka-1:9092,kafka-2:9092"
    client-config = "prod.properties"          # relative to this file; settings of the client

The file is for people too: a change by `odradek profile` replaces single lines, so that comments
and everything else stay as they are.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek_cli.errors import CliError, UsageError

BOOTSTRAP, CLIENT_CONFIG = "bootstrap", "client-config"
FIELDS = (BOOTSTRAP, CLIENT_CONFIG)

_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Profile:
    name: str
    bootstrap: str | None = None
    client_config: Path | None = None


@dataclass(frozen=True)
class Profiles:
    path: Path
    current: str | None = None
    by_name: Mapping[str, Profile] = field(default_factory=dict)

    def get(self, name: str) -> Profile:
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise UsageError(f"profile {name}: there is no such profile in {self.path}; it has: "
                             f"{known}")  # fmt: skip
        return self.by_name[name]


def config_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "odradek" / "config.toml"


def load() -> Profiles:
    """The profiles of the file; none without a file."""
    path = config_path()
    try:
        return parse(path, path.read_text())
    except FileNotFoundError:
        return Profiles(path)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from error


def parse(path: Path, text: str) -> Profiles:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CliError(f"{path}: is not valid TOML: {error}") from error
    tables = document.pop("profiles", {})
    current = document.pop("current", None)
    if document:
        raise CliError(f"{path}: {next(iter(document))}: unknown; expected current and profiles")
    if current is not None and not isinstance(current, str):
        raise CliError(f"{path}: current: expected the name of a profile")
    if not isinstance(tables, dict):
        raise CliError(f"{path}: profiles: expected tables such as [profiles.prod]")
    found = {name: _profile(path, name, table) for name, table in tables.items()}
    if current is not None and current not in found:
        raise CliError(f"{path}: current: there is no profile {current}")
    return Profiles(path, current, found)


def _profile(path: Path, name: str, table: Any) -> Profile:
    at = f"{path}: profiles.{name}"
    if not isinstance(table, dict):
        raise CliError(f"{at}: expected a table with {' or '.join(FIELDS)}")
    for key, value in table.items():
        if key not in FIELDS:
            raise CliError(f"{at}.{key}: unknown; expected {' or '.join(FIELDS)}")
        if not isinstance(value, str):
            raise CliError(f"{at}.{key}: expected a string")
    settings = table.get(CLIENT_CONFIG)
    return Profile(
        name,
        table.get(BOOTSTRAP),
        None if settings is None else path.parent / Path(settings).expanduser(),
    )


# -- changes ---------------------------------------------------------------------------------------


def set_field(name: str, key: str, value: str) -> Profiles:
    """Sets a field of a profile, which is made if it does not exist."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"profile {name}: a name has letters, digits, - and _")
    if key not in FIELDS:
        raise UsageError(f"{key}: unknown; a profile has {' and '.join(FIELDS)}")
    before = load()
    after = _write(before, _with_line(_text(before), f"profiles.{name}", key, value))
    return _write(after, _with_line(_text(after), None, "current", name)) if (
        after.current is None
    ) else after  # fmt: skip


def use(name: str) -> Profiles:
    before = load()
    before.get(name)
    return _write(before, _with_line(_text(before), None, "current", name))


def delete(name: str) -> Profiles:
    before = load()
    before.get(name)
    lines = _text(before).splitlines(keepends=True)
    start, end = _section(lines, f"profiles.{name}")
    del lines[start:end]
    if before.current == name:
        lines = [line for line in lines if not re.match(r"\s*current\s*=", line)]
    return _write(before, "".join(lines))


def _text(profiles: Profiles) -> str:
    return profiles.path.read_text() if profiles.path.exists() else ""


def _section(lines: list[str], table: str | None) -> tuple[int, int]:
    """The lines of a table with its header, or those before the first table."""
    headers = [n for n, line in enumerate(lines) if line.lstrip().startswith("[")]
    if table is None:
        return 0, headers[0] if headers else len(lines)
    header = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\]")
    for start in headers:
        if header.match(lines[start]):
            return start, next((n for n in headers if n > start), len(lines))
    return len(lines), len(lines)


def _with_line(text: str, table: str | None, key: str, value: str) -> str:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    line = f"{key} = {_quoted(value)}\n"
    start, end = _section(lines, table)
    for number in range(start, end):
        if re.match(rf'\s*"?{key}"?\s*=', lines[number]):
            lines[number] = line
            return "".join(lines)
    if table is None:
        lines.insert(0, line + ("\n" if lines else ""))
    elif start == len(lines):
        lines += ["\n"] * bool(lines) + [f"[{table}]\n", line]
    else:
        lines.insert(start + 1, line)
    return "".join(lines)


def _quoted(value: str) -> str:
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise UsageError(f"{value!r}: control characters are not possible here")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _write(before: Profiles, text: str) -> Profiles:
    """Replaces the file in one step; an invalid content is refused, and nothing changed."""
    after = parse(before.path, text)
    directory = before.path.parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=directory, delete=False) as file:  # mode 0600
            file.write(text)
        os.replace(file.name, before.path)
    except OSError as error:
        raise CliError(f"{before.path}: {error.strerror}") from error
    return after
