"""odradek_testkit.pytest_plugin: a missing program or right skips a test; CI requires programs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest
from odradek_testkit.engines import ToolsMissingError
from odradek_testkit.kubernetes.programs import ProgramsMissingError
from odradek_testkit.small_disk import MountRefusedError

@pytest.fixture
def tool():
    raise ProgramsMissingError("no etcd")

def test_in_a_fixture(tool): pass
def test_in_a_test(): raise ToolsMissingError("no java")
def test_a_right(): raise MountRefusedError("not root")
def test_a_failure(): raise OSError("broken")
"""


@pytest.mark.parametrize(
    ("required", "expected"), [("", "1 failed, 3 skipped"), ("1", "2 failed, 1 skipped, 1 error")]
)
def test_a_missing_program_skips_a_test(tmp_path: Path, required: str, expected: str) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "odradek_testkit.pytest_plugin"]
    command += ["-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    environment = {**os.environ, "ODRADEK_REQUIRE_TOOLS": required}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert expected in done.stdout.splitlines()[-1], done.stdout


LEAKS = """
import gc, socket, sys, types
def test_a_leak(): socket.socket(); gc.collect()
def test_spark_is_imported(): sys.modules["py4j"] = types.ModuleType("py4j")
def test_a_socket_of_spark(): socket.socket(); gc.collect()
"""


def test_sockets_of_spark_fail_no_later_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(LEAKS)
    command = [sys.executable, "-m", "pytest", "-p", "odradek_testkit.pytest_plugin"]
    command += ["-p", "no:cacheprovider", "-W", "error", f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "FAILED test_it.py::test_a_leak" in done.stdout
    assert "1 failed, 2 passed" in done.stdout.splitlines()[-1], done.stdout
