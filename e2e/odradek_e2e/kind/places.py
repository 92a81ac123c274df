"""Paths and names of the cluster, and how its programs are run."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

NAME = "odradek"  # of the cluster
NODES = (f"{NAME}-control-plane", f"{NAME}-worker", f"{NAME}-worker2", f"{NAME}-worker3")
ZONES = ("zone-a", "zone-b", "zone-c")  # of the workers, in this order
BRIDGE = "odradek-kind"  # of the private engine's network
FILES = Path(__file__).with_name("files")


class KindError(Exception):
    """This machine cannot run the cluster, or a step failed; the text says what to do."""


def home() -> Path:
    """Built programs and the private engine's images; `kind-down` keeps it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "odradek" / "kind"


def run_dir() -> Path:
    """Files of the current cluster; `kind-down` removes it."""
    return home() / "run"


def kubeconfig() -> Path:
    return run_dir() / "kubeconfig"


def command(
    arguments: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    stdin: BinaryIO | None = None,
    timeout_s: float | None = None,
) -> str:
    """Its standard output; KindError with the end of its output if it fails."""
    words = [str(one) for one in arguments]
    try:
        done = subprocess.run(
            words, env={**os.environ, **(env or {})}, stdin=stdin or subprocess.DEVNULL,
            capture_output=True, check=False, timeout=timeout_s,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KindError(f"{' '.join(words[:4])}: {error}") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise KindError(f"{' '.join(words[:6])} failed:\n{said[-3000:]}")
    return done.stdout.decode(errors="replace")
