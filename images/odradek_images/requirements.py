"""The part of requirements.lock that an image needs: its requirements and their dependencies.

    python -m odradek_images.requirements broker          # for pip or uv, with hashes
    python -m odradek_images.requirements broker --sbom   # the same as a CycloneDX list; with
                                                          # --debian ROOT also its Debian packages
    python -m odradek_images.requirements compiler        # for the Dockerfile's compiling stage

The lock names after each package the ones that require it ("# via aiohttp"); reversed, that is what
each package needs. Only the standard library is used: the Dockerfile runs this too.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek_images.debian import installed
from odradek_images.table import IMAGES, LOCK

# Codecs that kafka-python uses if they are installed; the lock has them only for our tests.
TESTS_ONLY = frozenset({"lz4", "python-snappy", "zstandard"})


# The compiler of our packages to C, and the packages whose types it has to know.
COMPILER = "compiler"
COMPILER_NEEDS = ("mypy", "setuptools")


class LockError(Exception):
    """The lock does not have what an image needs."""


@dataclass(frozen=True)
class Locked:
    """One package of the lock file."""

    name: str
    version: str
    text: str  # "kio==0.6.5 \\\n    --hash=sha256:… \\\n …"
    asked_by: frozenset[str]


def read_lock(text: str) -> dict[str, Locked]:
    found = {}
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.M):
        head = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", block)
        if head is None:
            continue
        lines = block.splitlines()
        pinned = [line for line in lines if not line.lstrip().startswith("#")]
        comments = [line.lstrip("# ") for line in lines if line.lstrip().startswith("#")]
        asked_by = {one.removeprefix("via").strip() for one in comments} - {""}
        text_of = "\n".join(pinned).rstrip()
        found[head[1]] = Locked(head[1], head[2], text_of, frozenset(asked_by))
    return found


def needed(lock: Mapping[str, Locked], roots: Iterable[str]) -> list[Locked]:
    """The roots and their dependencies, in alphabetical order."""
    chosen: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in chosen:
            continue
        if name not in lock:
            raise LockError(f"requirements.lock has no {name}")
        chosen.add(name)
        waiting += [one.name for one in lock.values()
                    if name in one.asked_by and one.name not in TESTS_ONLY]  # fmt: skip
    return [lock[name] for name in sorted(chosen)]


def requirements_of(image: str) -> list[Locked]:
    if image == COMPILER:
        compiled = next(one for one in IMAGES.values() if one.compiler)
        return needed(read_lock(LOCK.read_text()), (*compiled.requirements, *COMPILER_NEEDS))
    lock: dict[str, Locked] = {}
    for path in IMAGES[image].locks:
        lock |= read_lock(path.read_text())
    return needed(lock, IMAGES[image].requirements)


def requirements_text(packages: Sequence[Locked]) -> str:
    return "".join(f"{package.text}\n" for package in packages)


def sbom_text(
    packages: Sequence[Locked], debian: Mapping[str, str] | None = None, jars: Sequence[str] = ()
) -> str:
    """CycloneDX 1.5: the Python packages and, where they are known, Debian's, and the jars."""
    components = [_component("pypi", one.name, one.version) for one in packages]
    components += [_component("deb/debian", *one) for one in sorted((debian or {}).items())]
    for name in jars:  # the file names have no group, so there is no package URL
        found = re.fullmatch(r"(.+?)-(\d.*)\.jar", name)
        artifact, version = found.groups() if found else (name, "")
        components.append({"type": "library", "name": artifact, "version": version})
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}
    return json.dumps(bom, indent=1) + "\n"


def _component(kind: str, name: str, version: str) -> dict[str, str]:
    purl = f"pkg:{kind}/{name}@{version}"
    return {"type": "library", "name": name, "version": version, "purl": purl}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="odradek_images.requirements")
    parser.add_argument("image", choices=(*IMAGES, COMPILER))
    parser.add_argument("--sbom", action="store_true", help="as a CycloneDX list")
    parser.add_argument("--debian", type=Path, help="a root whose Debian packages are listed too")
    parser.add_argument("--jars", type=Path, help="a directory whose jars are listed too")
    given = parser.parse_args(arguments)
    packages = requirements_of(given.image)
    debian = installed(given.debian) if given.debian else {}
    jars = sorted(path.name for path in given.jars.iterdir()) if given.jars else []
    text = sbom_text(packages, debian, jars) if given.sbom else requirements_text(packages)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
