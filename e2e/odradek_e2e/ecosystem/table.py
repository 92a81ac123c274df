"""The results as a table in docs/how-to/clients.md, between two comments.

A run of some cases, or of one engine, replaces those cells and keeps the others.
"""

from __future__ import annotations

from pathlib import Path

from odradek_e2e.ecosystem.contract import Check
from odradek_e2e.ecosystem.registry import CASES

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "clients.md"
BEGIN, END = "<!-- ecosystem: begin -->", "<!-- ecosystem: end -->"
HEAD = "| case | client | checks | Odradek | Apache Kafka 4.3.1 |\n|---|---|---|---|---|\n"

Results = dict[str, dict[str, list[Check]]]  # case → engine → checks


def cell(checks: list[Check]) -> str:
    failed = [check.name for check in checks if check.state == "failed"]
    passed = sum(check.state == "ok" for check in checks)
    return f"{passed} passed, failed: {', '.join(failed)}" if failed else f"{passed} passed"


def described(checks: list[Check]) -> str:
    """The tested features: the codecs as one word, and those that the client lacks."""
    done = [check.name for check in checks if check.state != "absent"]
    codecs = [name.removeprefix("records ") for name in done if name.startswith("records ")]
    names = [name for name in done if not name.startswith("records ")]
    absent = dict.fromkeys(check.why for check in checks if check.state == "absent")
    text = ([f"records ({', '.join(codecs)})"] if codecs else []) + names
    return ", ".join(text) + "".join(f"; {why}" for why in absent)


def rows(page: str) -> dict[str, list[str]]:
    """The rows that the page has, by case."""
    inside = page.split(BEGIN)[1].split(END)[0]
    found = [[part.strip() for part in line.strip("|").split("|")] for line in inside.splitlines()
             if line.startswith("|")]  # fmt: skip
    return {row[0]: row for row in found[2:]}


def updated(page: str, found: Results) -> str:
    before = rows(page)
    lines = []
    for name, case in CASES.items():
        row = before.get(name, [name, case.title, "", "not run", "not run"])
        row[1] = case.title
        for engine, checks in found.get(name, {}).items():
            row[2] = described(checks)
            row[3 if engine == "embedded" else 4] = cell(checks)
        lines.append(f"| {' | '.join(row)} |\n")
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{HEAD}{''.join(lines)}{END}{rest.split(END, 1)[1]}"


def write(found: Results) -> None:
    PAGE.write_text(updated(PAGE.read_text(), found))
