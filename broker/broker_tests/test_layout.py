"""The folder `operator/` does not shadow Python's `operator`; test packages have unique names.

With operator/__init__.py, operator/conftest.py or pytest's importlib mode the stdlib module is
replaced, or a whole test file silently never runs (measured on Python 3.11 and pytest 9).
"""

from __future__ import annotations

import operator
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST_DIRS = ("broker/broker_tests", "operator/operator_tests", "spark-on-k8s/spark_tests",
             "cli/cli_tests", "e2e/e2e_tests", "docs/docs_tests")  # fmt: skip


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
