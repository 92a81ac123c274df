"""The tiers of the tests: each test belongs to exactly one, and a make target runs each.

    python -m odradek_testkit.tiers       # `make check`; prints what is in no tier and fails

A test's tier follows from its markers: `kind`, `long`, `kubernetes`; without one it is `quick`.
`kubernetes` is set by the plugin on every test that asks for the API server or for Helm, so that
`make test` needs no program of Kubernetes. `pytest --tier=quick` runs one tier.

The check finds a test file that pytest does not collect (it lies outside of `testpaths`, or its
directory is no package), and a tier that no make target runs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

QUICK = "quick"
# In this order: a long test with an API server is `long`.
MARKED = ("kind", "long", "kubernetes")
TIERS = (*MARKED, QUICK)

# Fixtures that need a program of Kubernetes: a download, or minutes of building.
KUBERNETES_FIXTURES = frozenset({"kubernetes", "helm_program"})

# Test files that are not for pytest's own run over the tree, and what runs them instead.
ELSEWHERE = {
    "e2e/blackbox/": "make blackbox, against a server of the caller's choice",
    "examples/": "tests of the examples, each in an environment of its own",
}
NOT_OURS = {".venv", ".git", "build", "dist"}

ROOT = Path(__file__).parents[2]


def tier_of(markers: Collection[str]) -> str:
    return next((name for name in MARKED if name in markers), QUICK)


def find_test_files(root: Path) -> set[str]:
    """Every test file of the tree, as a path from its root."""
    found = (path.relative_to(root) for path in root.rglob("test_*.py"))
    return {str(path) for path in found if not NOT_OURS & set(path.parts)}


def collected_files(root: Path) -> set[str]:
    """The test files that a plain `pytest` in this directory finds tests in."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pytest cannot collect the tests:\n{done.stdout}{done.stderr}")
    return {line.split("::")[0] for line in done.stdout.splitlines() if "::" in line}


def complaints(on_disk: Iterable[str], collected: Collection[str], makefile: str) -> list[str]:
    lost = sorted(
        path for path in on_disk if path not in collected and not path.startswith(tuple(ELSEWHERE))
    )
    run = set(re.findall(r"--tier=(\w+)", makefile))
    return [
        *(f"{path} is in no tier: pytest finds no test in it (outside of testpaths in "
          "pyproject.toml, or the whole file is skipped where a package is missing)"
          for path in lost),
        *(f"no make target runs the tier {name} (pytest --tier={name})"
          for name in TIERS if name not in run),
    ]  # fmt: skip


def main() -> None:
    found = complaints(
        find_test_files(ROOT), collected_files(ROOT), (ROOT / "Makefile").read_text()
    )
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
