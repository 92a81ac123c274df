"""The diagram of packages in DESIGN.md, drawn from import-linter's contracts in pyproject.toml.

A layer is a row, and imports only what is in the rows below it:

    ┌──────────────────────────────┐
    │ handlers                     │
    ├──────────────────────────────┤
    │ replication  │  controller   │
    └──────────────────────────────┘

Packages side by side do not import each other. Called by `generate.py`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence

from odradek_docs.repository_links import ROOT

BEGIN, END = "<!-- packages: begin (make gen writes this) -->", "<!-- packages: end -->"
_WIDTH = 72


def in_page(text: str) -> str:
    """The page with its diagram drawn again."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{''.join(_diagrams())}{END}{after}"


def _diagrams() -> Iterator[str]:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for contract in pyproject["tool"]["importlinter"]["contracts"]:
        if contract["type"] != "layers":
            continue
        container = ", ".join(f"`{name}`" for name in contract.get("containers", ()))
        yield f"\n{container or 'All packages'}:\n\n```\n"
        yield "\n".join(_box([_names(layer) for layer in contract["layers"]]))
        yield "\n```\n"


def _names(layer: str | dict[str, object]) -> list[str]:
    return [name.strip(" ()") for name in str(layer).split("|")]


def _box(layers: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"┌{'─' * _WIDTH}┐"
    for index, names in enumerate(layers):
        if index:
            yield f"├{'─' * _WIDTH}┤"
        for line in _wrapped(names):
            yield f"│ {line:<{_WIDTH - 2}} │"
    yield f"└{'─' * _WIDTH}┘"


def _wrapped(names: Sequence[str]) -> Iterator[str]:
    line = ""
    for name in names:
        longer = f"{line}  │  {name}" if line else name
        if len(longer) > _WIDTH - 2:
            yield line
            longer = name
        line = longer
    yield line
