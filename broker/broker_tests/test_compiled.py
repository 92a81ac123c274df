"""The compiled copy of the package is used exactly as long as it was made from the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import odradek_broker
import odradek_protocol
from odradek_protocol import _compiled


def run(code: str, path: Path, chosen: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    env["ODRADEK_COMPILED"] = chosen
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two small packages with our own __init__, and a "compiled" copy that identifies itself."""
    sources = tmp_path / "broker" / "odradek_broker"
    protocol = tmp_path / "broker" / "odradek_protocol"
    (sources / "log").mkdir(parents=True)
    protocol.mkdir()
    shutil.copyfile(odradek_broker.__file__, sources / "__init__.py")
    shutil.copyfile(odradek_protocol.__file__, protocol / "__init__.py")
    shutil.copyfile(_compiled.__file__, protocol / "_compiled.py")
    (protocol / "_kio_import.py").touch()
    (sources / "log" / "__init__.py").touch()
    (sources / "log" / "log.py").write_text("MADE = 'python'\n")
    copies = tmp_path / "build" / _compiled.COMPILED.name
    compiled = copies / "odradek_broker"
    shutil.copytree(sources, compiled)
    shutil.copytree(protocol, copies / "odradek_protocol")
    original = (sources / "log" / "log.py").stat()
    (compiled / "log" / "log.py").write_text("MADE = 'native'\n")  # as long as the other
    os.utime(compiled / "log" / "log.py", ns=(original.st_atime_ns, original.st_mtime_ns))
    return tmp_path / "broker"


MADE = "from odradek_broker.log.log import MADE; print(MADE)"


def test_the_compiled_copy_is_used_and_may_be_left_out(tree: Path) -> None:
    assert run(MADE, tree).stdout == "native\n"
    assert run(MADE, tree, "1").stdout == "native\n"
    assert run(MADE, tree, "0").stdout == "python\n"


@pytest.mark.parametrize(
    "name",
    [
        "odradek_broker/log/log.py",
        "odradek_broker/log/new.py",
        "odradek_broker/__init__.py",
        "odradek_protocol/_kio_import.py",
    ],
)
def test_a_source_that_is_changed_or_new_takes_it_out(tree: Path, name: str) -> None:
    with (tree / name).open("a") as source:
        source.write("# changed\n")
    assert run(MADE, tree).stdout == "python\n"
    refused = run(MADE, tree, "1")
    assert refused.returncode == 1
    assert "make compile" in refused.stderr


@pytest.mark.skipif(
    not os.environ.get("ODRADEK_REQUIRE_TOOLS") or os.environ.get("ODRADEK_COMPILED") == "0",
    reason="a developer may do without a compiler; CI must test what users run",
)
def test_brokers_of_this_run_are_compiled() -> None:
    code = "import odradek_broker.log.log as module; print(module.__file__)"
    assert run(code, Path(odradek_broker.__file__).parents[1]).stdout.strip().endswith(".so")
