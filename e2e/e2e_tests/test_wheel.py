"""The wheels as a user installs them: in an empty environment, without a checkout.

Nothing here imports our packages from the repository: commands run in the new environment, in a
directory of their own, without PYTHONPATH.
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from odradek_dist import wheel
from odradek_images.build import uv
from odradek_images.table import ROOT, version
from odradek_testkit.ports import free_port

# Packages that a broker alone must not install.
HEAVY = {"kopf", "lightkube", "matplotlib", "numpy", "pyspark", "kubernetes", "pytest", "mypy"}
pytestmark = pytest.mark.timeout(900)  # `built` compiles, unless `make compile` has done so
MODULE = "import odradek_broker.log.log as module; print(module.__file__)"


@dataclass(frozen=True)
class Installed:
    """A virtual environment with our wheel, and an empty directory to work in."""

    environment: Path
    directory: Path

    def run(
        self, *command: str, code: int = 0, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """A program of the environment; ODRADEK_… and PYTHON… of this process do not apply."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ODRADEK_", "PYTHON"))}
        path = f"{self.environment / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            [str(self.environment / "bin" / command[0]), *command[1:]],
            cwd=self.directory, env={**kept, "PATH": path, **settings},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done

    def pip(self, *command: str) -> str:
        """uv's: the same as pip's for a fifth of the time."""
        done = subprocess.run(
            [uv(), "pip", *command, "--quiet", f"--python={self.environment}"],
            cwd=self.directory, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def site(self) -> Path:
        said = self.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        return Path(said.stdout.strip())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, by the first worker of pytest-xdist that needs it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    target = shared / "dist"
    with open(shared / "dist.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            partial = shared / "dist.partial"
            wheel.build(partial, compiled=os.environ.get("ODRADEK_COMPILED") != "0")
            partial.rename(target)
    return target


@pytest.fixture(scope="module")
def compiled(built: Path) -> Path:
    found = list(built.glob("*.whl"))
    if not found and not os.environ.get("ODRADEK_REQUIRE_TOOLS"):
        pytest.skip("no compiled wheel without a C compiler: make tools")
    return found[0]


@pytest.fixture(scope="module")
def installed(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    yield from install(tmp_path_factory.mktemp("installed"), str(compiled))


@pytest.fixture
def with_testing(compiled: Path, tmp_path: Path) -> Iterator[Installed]:
    yield from install(tmp_path / "installed", f"odradek[testing] @ {compiled.as_uri()}")


def install(directory: Path, wanted: str) -> Iterator[Installed]:
    """Our wheel in a new environment, with the versions of the lock."""
    made = Installed(directory / "environment", directory / "work")
    made.directory.mkdir(parents=True)
    python = f"--python={sys.executable}"
    subprocess.run([uv(), "venv", "-q", python, str(made.environment)], check=True)
    pins = directory / "pins.txt"
    lock = (ROOT / "requirements.lock").read_text()
    pins.write_text("".join(f"{one}\n" for one in re.findall(r"^[\w.-]+==\S+", lock, re.M)))
    made.pip("install", f"--constraint={pins}", wanted)
    yield made
    shutil.rmtree(directory)


# -- the files -------------------------------------------------------------------------------------


def test_the_wheels_are_named_after_the_platforms_that_they_run_on(
    built: Path, compiled: Path
) -> None:
    tag = sysconfig.get_config_var("SOABI").split("-")[1]
    pattern = rf"odradek-{version()}-cp{tag}-cp{tag}-(manylinux_2_\d+|macosx\w+)_\w+\.whl"
    assert re.fullmatch(pattern, compiled.name)
    (pure,) = (built / wheel.PURE).iterdir()
    assert pure.name == f"odradek-{version()}-py3-none-any.whl"
    assert (built / f"odradek-{version()}.tar.gz").exists()


def test_the_pure_wheel_has_no_compiled_module_and_the_other_all(
    built: Path, compiled: Path
) -> None:
    (pure,) = (built / wheel.PURE).iterdir()
    assert not [name for name in zipfile.ZipFile(pure).namelist() if ".so" in name]
    names = zipfile.ZipFile(compiled).namelist()
    listed = zipfile.ZipFile(compiled).read("odradek_protocol/compiled.sha256").decode()
    sources = {line.split()[1].removesuffix(".py") for line in listed.splitlines()}
    assert len(sources) > 50
    modules = {name.partition(".")[0] for name in names if name.endswith(".so")}
    assert modules == sources | {"odradek_protocol/hot__mypyc"}


def test_every_package_of_the_wheel_is_typed(built: Path) -> None:
    (pure,) = (built / wheel.PURE).iterdir()
    names = set(zipfile.ZipFile(pure).namelist())
    for package in (*wheel.PACKAGES, *wheel.PARTS):
        assert f"{Path(package).name}/py.typed" in names


def test_the_wheel_has_every_module_of_ours_that_its_modules_import(tmp_path: Path) -> None:
    """Also of the test kit, of which it carries a part."""
    staged = tmp_path / "staged"
    staged.mkdir()
    wheel.stage(staged, {})
    for path in staged.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                if name.partition(".")[0].partition("_")[0] == "odradek":
                    module = staged / name.replace(".", "/")
                    there = module.with_suffix(".py").exists() or (module / "__init__.py").exists()
                    assert there, f"{path.relative_to(staged)} imports {name}"


def test_the_same_sources_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = {path.name: path for path in wheel.build(tmp_path, compiled=False)}
    (pure,) = (built / wheel.PURE).iterdir()
    for first in (pure, built / f"odradek-{version()}.tar.gz"):
        assert again[first.name].read_bytes() == first.read_bytes(), first.name


def test_the_extra_spark_is_the_version_that_is_tested(built: Path) -> None:
    (pure,) = (built / wheel.PURE).iterdir()
    text = zipfile.ZipFile(pure).read(f"odradek-{version()}.dist-info/METADATA").decode()
    required = [Requirement(one) for one in Parser().parsestr(text).get_all("Requires-Dist") or ()]
    spark = [one for one in required if 'extra == "spark"' in str(one)]
    lines = (ROOT / "spark-on-k8s" / "requirements.txt").read_text().splitlines()
    tested = [Requirement(line.partition("#")[0].strip()) for line in lines]
    assert [(r.name, r.extras, r.specifier) for r in spark] == [
        (r.name, r.extras, r.specifier) for r in tested
    ]


# -- installed -------------------------------------------------------------------------------------


def test_a_broker_brings_neither_kopf_nor_matplotlib(installed: Installed) -> None:
    names = {one["name"] for one in json.loads(installed.pip("list", "--format=json"))}
    assert "odradek" in names
    assert not names & HEAVY
    installed.pip("check")


def test_the_compiled_modules_run_while_they_equal_their_sources(
    installed: Installed, tmp_path: Path
) -> None:
    site = installed.site
    assert installed.run("python", "-c", MODULE).stdout.strip().startswith(str(site))
    assert installed.run("python", "-c", MODULE).stdout.strip().endswith(".so")
    sources = installed.run("python", "-c", MODULE, ODRADEK_COMPILED="0").stdout.strip()
    assert sources == str(site / "odradek_broker" / "log" / "log.py")
    changed = site / "odradek_protocol" / "varint.py"
    kept = shutil.copy2(changed, tmp_path)
    with changed.open("a") as source:
        source.write("# changed\n")
    try:
        assert installed.run("python", "-c", MODULE).stdout.strip() == sources
        refused = installed.run("python", "-c", MODULE, code=1, ODRADEK_COMPILED="1")
        assert "odradek_protocol/varint.py was changed" in refused.stderr
    finally:
        shutil.copy2(kept, changed)
    assert installed.run("python", "-c", MODULE, ODRADEK_COMPILED="1").stdout.endswith(".so\n")


def test_the_command_knows_its_version(installed: Installed) -> None:
    assert installed.run("odradek", "--version").stdout.split() == ["odradek", version()]


def test_the_plugin_gives_tests_a_kafka(with_testing: Installed) -> None:
    (with_testing.directory / "test_orders.py").write_text(
        "def test_orders(kafka):\n"
        "    kafka.topics.create('orders', partitions=1)\n"
        "    kafka.produce('orders', 'a', 'b')\n"
        "    assert kafka.read('orders', 2) == ['a', 'b']\n"
    )
    assert "1 passed" in with_testing.run("pytest", "-q", "-W", "error").stdout
    script = "from odradek.testing import Kafka\nwith Kafka(3) as kafka: print(kafka.bootstrap)"
    assert with_testing.run("python", "-c", script).stdout.count("127.0.0.1:") == 3


def test_the_demo_runs(installed: Installed) -> None:
    done = installed.run("odradek", "demo", "--records", "1000", "--json")
    assert json.loads(done.stdout)


def test_local_runs_the_quickstart(installed: Installed) -> None:
    """With three brokers, on ports of its own: the same manifests, as a user would edit them."""
    installed.run("odradek", "local", "quickstart", "start")
    again = installed.run("odradek", "local", "quickstart", "start", code=1)
    assert "exists already" in again.stderr
    manifest = installed.directory / "start" / "cluster.yaml"
    cluster = yaml.safe_load(manifest.read_text())
    cluster["spec"]["brokers"] = 3
    cluster["metadata"]["annotations"] = {"odradek.dev/local-port": str(free_port())}
    manifest.write_text(yaml.safe_dump(cluster))
    try:
        up = installed.run("odradek", "local", "up", "--detach", "-f", "start")
        bootstrap = up.stdout.split()[1]
        status = json.loads(
            installed.run("odradek", "local", "status", "-f", "start", "--json").stdout
        )
        (found,) = status["clusters"].values()
        assert found["status"]["readyBrokers"] == 3
        listed = installed.run("odradek", "topics", "list", "--bootstrap", bootstrap, "--json")
        assert {"orders", "customers"} <= {one["name"] for one in json.loads(listed.stdout)}
        for pid in found["pids"].values():
            maps = Path(f"/proc/{pid}/maps").read_text()
            assert "hot__mypyc" in maps, "the broker does not run compiled"
    finally:
        installed.run("odradek", "local", "down", "--delete", "--yes", "-f", "start")


def test_a_missing_extra_is_one_sentence(installed: Installed) -> None:
    asked = ("odradek", "plan", "--kubernetes", "-f", str(ROOT / "examples" / "quickstart"))
    refused = installed.run(*asked, code=1)
    assert "pip install 'odradek[operator]'" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    operator = installed.run("python", "-m", "odradek_operator.main", "-A", code=1)
    assert "pip install 'odradek[operator]'" in operator.stderr
    assert len(operator.stderr.strip().splitlines()) == 1
