"""Lints .github/workflows with actionlint: `make lint-workflows`.

actionlint is built once from its Go module into `$XDG_CACHE_HOME/odradek`. Without Go the reason is
printed, and the exit code is 0 unless ODRADEK_REQUIRE_TOOLS is set.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from odradek_images.table import ROOT

MODULE = "github.com/rhysd/actionlint/cmd/actionlint"
VERSION = "v1.7.7"


class ActionlintMissingError(Exception):
    """actionlint cannot be built here; the text says why."""


def actionlint() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache / "odradek" / f"actionlint-{VERSION}" / "actionlint"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise ActionlintMissingError("actionlint is built with Go, which is not installed")
    print(f"Building actionlint {VERSION} (half a minute, once) …", file=sys.stderr)
    done = subprocess.run(
        ["nice", "go", "install", f"{MODULE}@{VERSION}"],
        env={**os.environ, "GOBIN": str(program.parent), "CGO_ENABLED": "0"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ActionlintMissingError(f"actionlint cannot be built:\n{done.stderr.strip()[-1000:]}")
    return program


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Runs without shellcheck and pyflakes, which only some machines have."""
    command = [str(actionlint()), "-no-color", "-shellcheck=", "-pyflakes="]
    files = sorted(str(path) for path in (root / ".github" / "workflows").glob("*.yml"))
    return subprocess.run([*command, *files], cwd=root, capture_output=True, text=True, check=False)


def main() -> int:
    try:
        done = lint(ROOT)
    except ActionlintMissingError as missing:
        print(f"The workflows were not linted: {missing}", file=sys.stderr)
        return 1 if os.environ.get("ODRADEK_REQUIRE_TOOLS") else 0
    sys.stderr.write(done.stdout + done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
