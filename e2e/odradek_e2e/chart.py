"""The Helm chart under test: rendered, linted, compared with its golden files.

    python -m odradek_e2e.chart lint            # helm lint, strictly, with every set of values
    python -m odradek_e2e.chart lint-if-built   # the same; without helm it says so and ends
    python -m odradek_e2e.chart golden          # regenerates the golden files

A set of values is a file in charts/odradek/ci; `defaults` is the chart as it is.
"""

import difflib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from odradek_testkit.kubernetes.programs import (
    KUBERNETES,
    ProgramsMissingError,
    find_program,
    program,
)

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "odradek"
GOLDEN = ROOT / "e2e" / "e2e_tests" / "golden"
DEFAULTS = "defaults"
RELEASE, NAMESPACE = "odradek", "kafka-system"  # of what is rendered


class HelmError(Exception):
    """helm failed; the text is its output."""


def value_sets() -> list[str]:
    return [DEFAULTS, *sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))]


def values_of(value_set: str) -> list[str]:
    return [] if value_set == DEFAULTS else [f"--values={CHART / 'ci' / value_set}.yaml"]


def helm(*args: str, kubeconfig: Path | None = None) -> str:
    """Its standard output. The user's own Helm configuration is neither read nor written."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home}
        if kubeconfig is not None:
            environment["KUBECONFIG"] = str(kubeconfig)
        done = subprocess.run(
            [str(program("helm")), *args],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise HelmError((done.stderr + done.stdout).strip())
    return done.stdout


def render(*options: str, release: str = RELEASE, namespace: str = NAMESPACE) -> str:
    return helm("template", release, str(CHART), f"--namespace={namespace}",
                f"--kube-version={KUBERNETES}", *options)  # fmt: skip


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def golden_text(value_set: str) -> str:
    """Without the CRDs; another test compares those with crds/."""
    parts = render(*values_of(value_set)).split("\n---\n")
    kept = [part for part in parts if "\nkind: CustomResourceDefinition\n" not in part]
    return "\n---\n".join(kept).rstrip("\n") + "\n"


def golden_file(value_set: str) -> Path:
    return GOLDEN / f"{value_set}.yaml"


def golden_difference(value_set: str) -> str:
    """The diff to the golden file; empty if the chart renders the same."""
    path = golden_file(value_set)
    before = path.read_text() if path.exists() else ""
    lines = difflib.unified_diff(
        before.splitlines(), golden_text(value_set).splitlines(), path.name, "now", lineterm=""
    )
    return "\n".join(lines)


def lint() -> None:
    for value_set in value_sets():
        helm("lint", str(CHART), "--strict", "--quiet", f"--kube-version={KUBERNETES}",
             *values_of(value_set))  # fmt: skip
        print(f"helm lint {CHART.relative_to(ROOT)}: {value_set}")


def lint_if_built() -> None:
    """For `make check`, which should not wait for a build of helm (a minute, needs Go)."""
    if find_program("helm") is None:
        print("helm lint was left out: `make helm-lint` gets helm; `make test-kubernetes` lints")
    else:
        lint()


def write_golden() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for value_set in value_sets():
        golden_file(value_set).write_text(golden_text(value_set))


def main(arguments: Sequence[str]) -> int:
    commands = {"lint": lint, "lint-if-built": lint_if_built, "golden": write_golden}
    if len(arguments) != 1 or arguments[0] not in commands:
        print(f"usage: python -m odradek_e2e.chart {' | '.join(commands)}", file=sys.stderr)
        return 2
    try:
        commands[arguments[0]]()
    except HelmError as error:
        print(error, file=sys.stderr)
        return 1
    except ProgramsMissingError as missing:
        print(f"The chart was not checked: {missing}", file=sys.stderr)
        return 1 if os.environ.get("ODRADEK_REQUIRE_TOOLS") else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
