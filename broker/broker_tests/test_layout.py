"""The folder `operator/` does not shadow Python's `operator`; test packages have unique names; and
within a program one name means one thing.

With operator/__init__.py, operator/conftest.py or pytest's importlib mode the stdlib module is
replaced, or a whole test file silently never runs (measured on Python 3.11 and pytest 9).
"""

from __future__ import annotations

import ast
import operator
import sysconfig
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST_DIRS = ("broker/broker_tests", "operator/operator_tests", "spark-on-k8s/spark_tests",
             "cli/cli_tests", "cli/console_tests", "e2e/e2e_tests", "docs/docs_tests")  # fmt: skip


def test_the_stdlib_module_operator_is_the_stdlib_module() -> None:
    assert operator.__file__ is not None
    assert Path(operator.__file__).parent == Path(sysconfig.get_path("stdlib"))
    assert operator.itemgetter(1)("ab") == "b"
    for name in ("__init__.py", "conftest.py"):
        assert not (ROOT / "operator" / name).exists()
        assert not (ROOT / "broker" / name).exists()


def test_test_packages_have_names_of_their_own() -> None:
    """Two directories called `tests` would be one package; the second would never be imported."""
    for test_dir in TEST_DIRS:
        assert (ROOT / test_dir / "__init__.py").exists()
    for directory in (path.parent for path in ROOT.glob("broker/broker_tests/**/test_*.py")):
        assert (directory / "__init__.py").exists(), directory


def test_every_folder_with_code_of_a_package_is_a_package() -> None:
    """import-linter passes over a folder without `__init__.py`, and its contracts with it."""
    packages = [path.parent for path in ROOT.glob("*/odradek*/__init__.py")]
    assert len(packages) >= 16
    foreign = ROOT / "e2e" / "odradek_e2e" / "ecosystem" / "programs"
    folders = {path.parent for package in packages for path in package.rglob("*.py")}
    bare = [at for at in sorted(folders) if not (at / "__init__.py").exists()]
    assert [at for at in bare if foreign not in at.parents] == []


PRODUCT_LINES_MAX = 450
GENERATED = {ROOT / "broker" / "odradek_protocol" / "messages" / "kio_table.py"}


def test_no_product_file_is_past_its_length() -> None:
    """A longer one usually does more than one thing: look for the seam."""
    files = set(ROOT.glob("*/odradek*/**/*.py")) - GENERATED
    assert len(files) > 500
    lines = {path: path.read_text().count("\n") for path in files}
    assert {str(p.relative_to(ROOT)): n for p, n in lines.items() if n > PRODUCT_LINES_MAX} == {}


# The packages that each program loads.
PROGRAMS = {
    "broker": ("broker/odradek_protocol", "broker/odradek_broker"),
    "operator": (
        "broker/odradek_protocol", "operator/odradek_api", "operator/odradek_operator",
    ),
    "spark": ("operator/odradek_api", "broker/odradek_schemas", "spark-on-k8s/odradek_spark"),
    "command line": (
        "broker/odradek_protocol", "broker/odradek_schemas", "operator/odradek_api",
        "operator/odradek_operator", "cli/odradek_cli", "cli/odradek_console",
    ),
}  # fmt: skip
# Brokers do not load the client for people's programs.
NOT_LOADED = {"broker": "broker/odradek_protocol/client"}
# The same idea in siblings that do not know each other: the three group protocols each have their
# own, and Fetch is a request of the wire and an event of the quorum's state machine.
SAME_IDEA = {
    "Context", "Decision", "FetchRequest", "MemberSpec", "MemberState", "Timer", "TimerKind",
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_two_classes_of_a_program_share_a_name(program: str) -> None:
    left_out = ROOT / NOT_LOADED.get(program, "no such folder")
    homes: dict[str, list[str]] = defaultdict(list)
    for package in PROGRAMS[program]:
        for path in (ROOT / package).rglob("*.py"):
            if left_out not in path.parents:
                for node in ast.parse(path.read_text()).body:
                    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                        homes[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: at for name, at in homes.items() if len(at) > 1 and name not in SAME_IDEA}
    assert twice == {}
    if program == "broker":
        assert all(len(homes[name]) > 1 for name in SAME_IDEA), "an exception without a use"
