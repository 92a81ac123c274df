"""Builds the wheels that work without this repository: `make dist`.

    dist/odradek-0.2.0-cp311-cp311-manylinux_2_34_x86_64.whl    the broker's hot path is compiled
    dist/pure/odradek-0.2.0-py3-none-any.whl                    for all other platforms
    dist/odradek-0.2.0.tar.gz                                   sources of the same packages

The product's packages lie in several folders of this repository, together with tests, benchmarks
and tools. They are copied into one directory, with what users need from elsewhere (the quickstart
manifests) and the compiled modules, and setuptools makes the wheel there. The pure wheel has a
directory of its own so that `pip install dist/*.whl` names one file.

The same sources give the same bytes: the times in the archives are those of the last commit, or
SOURCE_DATE_EPOCH.
"""

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek_images.compiled import MADE_OF, CompileError, compiled_modules, made_of
from odradek_images.table import BROKER, ROOT

DIST = ROOT / "dist"
PURE = "pure"
# The packages that users run. Each imports only packages of this list, and what pyproject.toml
# declares.
PACKAGES = (
    "broker/odradek_protocol",
    "broker/odradek_schemas",
    "broker/odradek_broker",
    "operator/odradek_api",
    "operator/odradek_operator",
    "spark-on-k8s/odradek_spark",
    "cli/odradek_cli",
    "cli/odradek_console",
    "e2e/odradek",
)
# Of our own test kit only what odradek.testing stands on: servers as processes, ports, waiting.
# None of it needs more than the product does (import-linter).
PARTS = {
    "e2e/odradek_testkit": (
        *("__init__.py", "py.typed", "caching.py", "launching.py", "ports.py", "waiting.py"),
        *("engines", "kafka-tools"),
    )
}
# From elsewhere in the repository into a package.
FILES = {"examples/quickstart": "odradek_cli/quickstart"}
TOP_FILES = ("README.md", "LICENSE")
EARLIEST = 315532800  # 1980, where the times of a zip file begin

SETUPTOOLS = """
[tool.setuptools]
packages = {packages}

[tool.setuptools.package-data]
"*" = ["**/*"]
"""
SETUP = """
from setuptools import Distribution, setup

class Compiled(Distribution):
    def has_ext_modules(self):
        return True

setup(distclass=Compiled)
"""
BUILD = "import sys; from setuptools import build_meta; build_meta.{what}(*sys.argv[1:2]{options})"


class DistError(Exception):
    """A wheel cannot be built; the text says why."""


def stage(directory: Path, extensions: Mapping[str, Path]) -> None:
    """Fill an empty directory with what the wheel contains, and a pyproject.toml for it."""
    ignore = shutil.ignore_patterns("__pycache__", ".odradek")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / Path(package).name, ignore=ignore)
    for package, parts in PARTS.items():
        _copy_parts(ROOT / package, directory / Path(package).name, parts)
    for source, target in FILES.items():
        shutil.copytree(ROOT / source, directory / target, ignore=ignore)
    for name in TOP_FILES:
        shutil.copyfile(ROOT / name, directory / name)
    project = (ROOT / "pyproject.toml").read_text().partition("\n[tool.")[0]
    packages = sorted(
        path.parent.relative_to(directory).as_posix().replace("/", ".")
        for path in directory.rglob("__init__.py")
    )
    (directory / "pyproject.toml").write_text(project + SETUPTOOLS.format(packages=packages))
    if not extensions:
        return
    for name, path in extensions.items():
        shutil.copyfile(path, directory / name)
    copied = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*.py")}
    (directory / MADE_OF).write_text(made_of(extensions, copied))
    (directory / "setup.py").write_text(SETUP)


def _copy_parts(source: Path, target: Path, parts: Sequence[str]) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    target.mkdir()
    for part in parts:
        if (source / part).is_dir():
            shutil.copytree(source / part, target / part, ignore=ignore)
        else:
            shutil.copyfile(source / part, target / part)


def platform_tag(extensions: Mapping[str, Path]) -> str:
    """The oldest platform on which the compiled modules load, in the words of PEP 600.

    "manylinux_2_34_x86_64": Linux with glibc 2.34 or newer. Only glibc may be linked.
    """
    plain = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not plain.startswith("linux_"):
        return plain
    newest = (2, 17)
    for path in extensions.values():
        text = _run("readelf", "--wide", "--dynamic", "--version-info", str(path))
        linked = set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))
        if foreign := {one for one in linked if not re.match(r"lib(c|m|pthread|dl)\.so", one)}:
            raise DistError(f"{path.name} needs {', '.join(sorted(foreign))}, which is not glibc")
        for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", text):
            newest = max(newest, (int(major), int(minor)))
    return f"manylinux_{newest[0]}_{newest[1]}_{plain.removeprefix('linux_')}"


def build(target: Path, *, compiled: bool = True) -> list[Path]:
    """The wheels and the source package; what was in `target` of an older build is removed."""
    for old in (*target.glob("odradek-*.whl"), *target.glob("odradek-*.tar.gz")):
        old.unlink()
    shutil.rmtree(target / PURE, ignore_errors=True)
    (target / PURE).mkdir(parents=True)
    extensions = compiled_modules(BROKER.compiler) if compiled and BROKER.compiler else {}
    with tempfile.TemporaryDirectory() as directory:
        staged = Path(directory)
        stage(staged / "pure", {})
        _setuptools("build_wheel", staged / "pure", target / PURE)
        _setuptools("build_sdist", staged / "pure", staged)
        _reproducible(next(staged.glob("*.tar.gz")), target)
        if extensions:
            stage(staged / "compiled", extensions)
            options = f"--plat-name={platform_tag(extensions)}"
            _setuptools("build_wheel", staged / "compiled", target, options)
    return [*sorted(target.glob("odradek-*")), *sorted((target / PURE).glob("odradek-*"))]


def source_date() -> str:
    """Seconds since 1970 for the times in archives."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    said = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return said.stdout.strip() or str(EARLIEST)


def _reproducible(sdist: Path, target: Path) -> None:
    """The same archive without the times and owners of this build."""
    when = int(source_date())
    with (
        tarfile.open(sdist) as made,
        open(target / sdist.name, "wb") as out,
        gzip.GzipFile("", "wb", fileobj=out, mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for info in made:
            info.mtime, info.uid, info.gid, info.uname, info.gname = when, 0, 0, "root", "root"
            tar.addfile(info, made.extractfile(info) if info.isreg() else None)


def _setuptools(what: str, directory: Path, target: Path, *options: str) -> None:
    given = f", {{'--build-option': {list(options)!r}}}" if options else ""
    # Owners and permissions are part of an archive; those of a checkout depend on its umask.
    when = int(source_date())
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (when, when))
    program = BUILD.format(what=what, options=given)
    _run(sys.executable, "-c", program, str(target.resolve()), cwd=directory)


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        ["nice", *command],
        cwd=cwd,
        env={**os.environ, "SOURCE_DATE_EPOCH": source_date()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        raise DistError(f"{' '.join(command[:2])} … failed:\n{said[-3000:]}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="odradek_dist.wheel", description="Builds the wheels")
    parser.add_argument("--to", type=Path, default=DIST, help="default: dist")
    parser.add_argument("--pure", action="store_true", help="only the wheel without compiled code")
    given = parser.parse_args(arguments)
    try:
        for path in build(given.to, compiled=not given.pure):
            print(path)
    except (DistError, CompileError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
