"""The ecosystem suite itself: a program that reports what it did not do fails."""

from __future__ import annotations

from pathlib import Path

from odradek_e2e.ecosystem.case import CLIENT, Place, complete, program_case
from odradek_e2e.ecosystem.contract import Check, parse
from odradek_e2e.ecosystem.table import BEGIN, END, cell, updated
from odradek_testkit.engines import RunningBroker


def test_a_program_that_only_claims_success_fails(tmp_path: Path) -> None:
    lines = "\\n".join(f"ok {name}" for name in CLIENT if name != "group")
    case = program_case("liar", "liar 1", lambda: ["sh", "-c", f"printf '{lines}\\n'", "liar"])
    with RunningBroker() as broker:
        assert case.run is not None
        found = complete(case, case.run(Place(broker, tmp_path, "liar")))
    failed = {check.name for check in found if check.state == "failed"}
    # Nothing confirms "others" or "group" from outside; "group" fails as it is not reported.
    assert failed == set(CLIENT) - {"others"}


def test_lines_that_are_no_report_are_skipped() -> None:
    assert parse("hello\nok admin\nfailed group: a: b\nokay x") == [
        Check("admin", "ok"),
        Check("group", "failed", "a: b"),
    ]


def test_a_run_replaces_its_own_cells_only() -> None:
    page = f"# Clients\n{BEGIN}\n{END}\nrest"
    once = updated(page, {"kcat": {"embedded": [Check("group", "ok")]}})
    twice = updated(once, {"kcat": {"apache": [Check("group", "failed", "why")]}})
    (row,) = [line for line in twice.splitlines() if line.startswith("| kcat ")]
    assert row.endswith("| 1 passed | 0 passed, failed: group |")
    assert twice.endswith("\nrest")
    assert cell([Check("a", "ok"), Check("b", "absent", "none")]) == "1 passed"
