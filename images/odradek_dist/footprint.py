"""The size of an installation of the wheel: packages and megabytes, for the base and each extra.

    python -m odradek_dist.footprint dist/odradek-….whl [extra …]

Every variant is installed into an environment of its own, with the versions of the lock. The
numbers are for docs/how-to/install.md.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from odradek_images.build import uv
from odradek_images.table import ROOT

MB = 1_000_000
EXTRAS = ("", "operator", "testing", "spark")


def measure(wheel: Path, extra: str) -> tuple[int, float]:
    """Packages (ours is one of them) and megabytes of files, without .pyc files."""
    with tempfile.TemporaryDirectory() as directory:
        environment = Path(directory) / "environment"
        pins = Path(directory) / "pins.txt"
        lock = (ROOT / "requirements.lock").read_text()
        pins.write_text("".join(f"{one}\n" for one in re.findall(r"^[\w.-]+==\S+", lock, re.M)))
        wanted = f"odradek[{extra}] @ {wheel.resolve().as_uri()}" if extra else str(wheel)
        _run(uv(), "venv", "-q", f"--python={sys.executable}", str(environment))
        where = f"--python={environment}"
        _run(uv(), "pip", "install", "-q", where, f"--constraint={pins}", wanted)
        listed = json.loads(_run(uv(), "pip", "list", "-q", where, "--format=json"))
        files = (path for path in (environment / "lib").rglob("*") if path.is_file())
        return len(listed), sum(path.stat().st_size for path in files) / MB


def _run(*command: str) -> str:
    return subprocess.run(["nice", *command], check=True, capture_output=True, text=True).stdout


def main(arguments: Sequence[str]) -> int:
    wheel, *extras = arguments
    print("| | packages | MB |\n|---|---|---|")
    for extra in extras or EXTRAS:
        packages, size = measure(Path(wheel), extra)
        name = f"odradek[{extra}]" if extra else "odradek"
        print(f"| `{name}` | {packages} | {size:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
