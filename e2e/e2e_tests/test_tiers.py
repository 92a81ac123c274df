"""odradek_testkit.tiers: every test is in one tier, and a tier runs what belongs to it."""

import subprocess
import sys
from pathlib import Path

import pytest

from odradek_testkit.tiers import ROOT, TIERS, complaints, find_test_files, tier_of

TESTS = """
import pytest

@pytest.fixture
def kubernetes(): return "an API server"

@pytest.fixture
def namespace(kubernetes): return "of a test"

def test_plain(): pass
def test_with_a_namespace(namespace): pass
@pytest.mark.long
def test_slow(): pass
@pytest.mark.long
def test_slow_with_kubernetes(kubernetes): pass
@pytest.mark.kind
def test_story(): pass
"""
MARKERS = "[pytest]\nmarkers =\n  long: l\n  kubernetes: k\n  kind: k\n"


@pytest.mark.parametrize(
    ("tier", "names"),
    [
        ("quick", {"test_plain"}),
        ("kubernetes", {"test_with_a_namespace"}),
        ("long", {"test_slow", "test_slow_with_kubernetes"}),
        ("kind", {"test_story"}),
    ],
)
def test_a_tier_runs_its_own_tests(tmp_path: Path, tier: str, names: set[str]) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(MARKERS)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "odradek_testkit.pytest_plugin"]
    command += ["-p", "no:cacheprovider", f"--tier={tier}", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    passed = {line.split("::")[1].split()[0] for line in done.stdout.splitlines()
              if "PASSED" in line}  # fmt: skip
    assert passed == names, done.stdout + done.stderr


def test_no_long_test_begins_after_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(MARKERS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "odradek_testkit.pytest_plugin"]
    command += ["-p", "no:cacheprovider", "test_it.py"]
    for deadline, expected in (("1", "3 passed, 2 skipped"), ("99999999999", "5 passed")):
        monkeypatch.setenv("ODRADEK_TEST_DEADLINE", deadline)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert expected in done.stdout.splitlines()[-1], done.stdout


def test_markers_decide() -> None:
    assert tier_of({"java", "spark"}) == "quick"
    assert tier_of({"kubernetes", "long"}) == "long"
    assert tier_of({"long", "kind"}) == "kind"


def test_a_file_that_is_not_collected_and_a_tier_that_is_not_run_are_named() -> None:
    targets = "".join(f"\tpytest --tier={name}\n" for name in TIERS if name != "long")
    found = complaints(
        ["a/test_in.py", "b/test_lost.py", "e2e/blackbox/test_kcat.py"], {"a/test_in.py"}, targets
    )
    assert [line.split()[0] for line in found] == ["b/test_lost.py", "no"]
    assert "--tier=long" in found[1]


def test_files_are_found_anywhere_but_in_environments(tmp_path: Path) -> None:
    for name in ("new/test_a.py", ".venv/lib/test_b.py", "build/test_c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert find_test_files(tmp_path) == {"new/test_a.py"}
    assert "e2e/e2e_tests/test_tiers.py" in find_test_files(ROOT)
