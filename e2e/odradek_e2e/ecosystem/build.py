"""Programs with clients of others, built or installed once into the cache.

    go_program("sarama")         → $XDG_CACHE_HOME/odradek/ecosystem/sarama-1f6c…/program
    go_tool("kminion", PACKAGE)  a program of others as it is, from its Go module
    node_program("kafkajs")      → the directory with main.js and node_modules
    python_program("faust")      → the Python of an environment with what requirements.lock pins
    java_classes("connect")      → a class path: the jars of its pom.xml, and its own classes

The directory's name has a hash of the sources and lock files in `programs/`, so a change builds
anew. Locks pin every package with its hash and name no address.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek_testkit.caching import cache_home
from odradek_testkit.engines import ToolsMissingError, cached_jars

PROGRAMS = Path(__file__).parent / "programs"
SHARED = PROGRAMS / "shared"
# Go: a module cache that can be removed. confluent-kafka-javascript: where its binaries cannot be
# downloaded, its librdkafka is compiled, with the libraries of the system, by `make -j`: not above
# a load of 4.
BUILD_SETTINGS = {"GOFLAGS": "-modcacherw", "CKJS_LINKING": "dynamic", "MAKEFLAGS": "-l4"}


class CannotBuildError(Exception):
    """A program cannot be had on this machine; the text says why."""


def cache_dir() -> Path:
    return cache_home() / "ecosystem"


def go_program(name: str) -> Path:
    """The executable of programs/NAME, a Go module."""

    def build(place: Path) -> None:
        run(["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", "program", "."],
            place)  # fmt: skip

    return built(name, [SHARED / "check.go"], build) / "program"


def go_tool(name: str, package: str) -> Path:
    """The executable of a package that programs/NAME/go.mod names as a tool."""

    def build(place: Path) -> None:
        run(["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", "program",
             package], place)  # fmt: skip

    return built(name, [], build) / "program"


def node_program(name: str) -> Path:
    """programs/NAME with its packages, each checked against the hash in package-lock.json."""
    command = ["npm", "ci", "--no-audit", "--no-fund"]
    return built(name, [SHARED / "check.js"], lambda place: run(command, place))


def python_program(name: str) -> Path:
    """The interpreter of a virtual environment; programs/NAME/app.py lies two levels above it."""

    def build(place: Path) -> None:
        run([sys.executable, "-m", "venv", "venv"], place)
        run(["venv/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
             "--require-hashes", "-r", "requirements.lock"], place)  # fmt: skip

    return built(name, [], build) / "venv" / "bin" / "python"


def java_classes(name: str) -> str:
    """The class path of programs/NAME: what its pom.xml names, and its *.java compiled."""
    pom = PROGRAMS / name / "pom.xml"
    try:
        jars = f"{cached_jars(f'ecosystem-{name}', pom)}/*"
    except ToolsMissingError as error:
        raise CannotBuildError(str(error)) from None
    sources = sorted(path.name for path in pom.parent.glob("*.java"))
    if not sources:
        return jars
    place = built(name, [], lambda at: run(["javac", "-cp", jars, "-d", "classes", *sources], at))
    return f"{place / 'classes'}:{jars}"


def built(name: str, shared: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """The directory in which programs/NAME was built; builds it if it is not there."""
    source = PROGRAMS / name
    files = sorted(path for path in source.rglob("*") if path.is_file()) + list(shared)
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    place = cache_dir() / f"{name}-{digest.hexdigest()[:8]}"
    cache_dir().mkdir(parents=True, exist_ok=True)
    with open(cache_dir() / "build.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / ".complete").exists():
            return place
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
        for path in shared:
            shutil.copy(path, place)
        print(f"Building {name}, once …", file=sys.stderr, flush=True)
        build(place)
        (place / ".complete").touch()
    return place


def run(command: Sequence[str], place: Path) -> None:
    if not (place / command[0]).exists() and shutil.which(command[0]) is None:
        raise CannotBuildError(f"{command[0]} is not installed")
    done = subprocess.run(
        ["nice", "-n", "10", *command],
        cwd=place,
        env={**os.environ, **BUILD_SETTINGS},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr or done.stdout)[-2000:]
        raise CannotBuildError(f"{' '.join(command[:3])} failed in programs/{place.name}:\n{last}")
