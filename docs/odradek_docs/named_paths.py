"""Paths of the repository that Markdown pages name in `code`, and that have to exist.

A path begins at the root, or at one of BASES, below which docs abbreviate (`raft/`,
`cluster/test_isr.py`); the name of a Python file alone may be anywhere. `*` is a pattern. Spans
with other characters (`host:port`, `<hash>`, options) are no paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from odradek_docs.repository_links import ROOT

_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`([\w.*/-]+)`")
IMAGES = "odradek/"  # `odradek/broker` is an image; the package of that name is e2e/odradek
EXAMPLE_NAMES = ("file.py", "job.py")  # of users, in examples
# Where an abbreviated path may begin.
BASES = (
    "",
    "broker",
    "broker/odradek_broker",
    "broker/broker_tests",
    "operator",
    "operator/odradek_operator",
    "operator/operator_tests",
    "spark-on-k8s",
    "spark-on-k8s/odradek_spark",
    "spark-on-k8s/spark_tests",
    "cli",
    "e2e",
    "e2e/odradek_e2e/kind",
    "e2e/e2e_tests",
    "images",
    "bench",
    "docs",
    "examples",
    "examples/testing",
)


def missing(page: Path) -> Iterator[str]:
    """Paths that a page names and that are not there."""
    for name in named(page.read_text()):
        if _looks_like_ours(name) and not any(_exists(base, name) for base in BASES):
            yield name


def named(text: str) -> list[str]:
    spans = _SPAN.findall(_FENCED.sub("", text))
    return list(dict.fromkeys(span for span in spans if not span.startswith(("/", "."))))


def _looks_like_ours(name: str) -> bool:
    """A Python file, or a path whose first part is a folder below one of the bases."""
    if "/" not in name:
        return name.endswith(".py") and name not in EXAMPLE_NAMES
    if ".odradek" in name or name.startswith("build/"):  # what programs write
        return False
    if name.startswith(IMAGES):
        return name.endswith(".py")
    first = name.split("/")[0]
    return name.endswith((".py", ".md", "/")) or any(
        (ROOT / base / first).is_dir() for base in BASES
    )


def _exists(base: str, name: str) -> bool:
    if "/" not in name:
        return any((ROOT / base).rglob(name)) if base else False
    name = name.rstrip("/")
    return any((ROOT / base).glob(name)) or (ROOT / base / f"{name}.py").exists()
