"""Profiles our broker while a case runs: `make profile CASE=connections-100`.

py-spy samples the broker's stack 200 times a second, from outside, while the load of the case runs
repeatedly. The output lists functions by own samples (a system call counts for the Python function
that made it) and by samples on the stack. Waiting for events is left out. Not a benchmark: Apache
Kafka does not run, and no numbers are kept.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from odradek_bench.case import Bench
from odradek_bench.cases import ALL
from odradek_bench.engines import ODRADEK, Odradek, image_python

RATE = 200
ROWS = 25
IDLE = ("Runner.run", "Condition.wait", "_worker")  # the loop in epoll, threads without work


def main() -> int:
    parser = argparse.ArgumentParser(prog="odradek_bench.profile", description=__doc__)
    parser.add_argument("--case", default="connections-100", choices=[*ALL])
    parser.add_argument("--seconds", type=int, default=15)
    options = parser.parse_args()
    if not (Path(sys.executable).parent / "py-spy").exists():
        print("py-spy is not installed: make setup", file=sys.stderr)
        return 2
    Odradek.python = image_python()
    with tempfile.TemporaryDirectory(prefix="odradek-profile-") as directory:
        stacks = record(options.case, options.seconds, Path(directory))
    own, inclusive = count(stacks)
    for title, counted in (("itself", own), ("with what it called", inclusive)):
        print(f"\n% of the time that it worked, {title}")
        for name, share in top(counted, sum(own.values())):
            print(f"{share:5.1f}  {name}")
    return 0


def record(name: str, seconds: int, directory: Path) -> list[str]:
    """Lines of py-spy's raw format: frames from the outermost one, then the number of samples."""
    case, bench = ALL[name], Bench(directory, small=True)
    servers = bench.cluster(ODRADEK) if case.servers == "cluster" else bench.server(ODRADEK)
    file = directory / "stacks"
    try:
        case.run(bench, ODRADEK)  # the first run imports modules and opens files; it is not sampled
        bench.small = False
        spy = subprocess.Popen(
            [Path(sys.executable).parent / "py-spy", "record", "--format=raw", f"--output={file}",
             f"--rate={RATE}", f"--duration={seconds}", f"--pid={servers.pids[0]}"],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        began = time.monotonic()
        while spy.poll() is None and time.monotonic() - began < seconds:
            print(case.run(bench, ODRADEK))
        spy.wait()
    finally:
        bench.close()
        shutil.rmtree(directory / ODRADEK, ignore_errors=True)
    return file.read_text().splitlines()


def count(stacks: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """The number of samples of each function at the top of the stack, and anywhere on it.

    "run (main.py:12);serve (produce.py:60) 7" -> {"serve (produce.py)": 7}, {… both: 7}
    """
    own: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    for line in stacks:
        stack, _, times = line.rpartition(" ")
        frames = [_without_line(frame) for frame in stack.split(";")]
        if frames[-1].startswith(IDLE):
            continue
        own[frames[-1]] += int(times)
        for frame in set(frames):
            inclusive[frame] += int(times)
    return own, inclusive


def _without_line(frame: str) -> str:
    name, colon, rest = frame.rpartition(":")
    return f"{name})" if colon and rest.rstrip(")").isdecimal() else frame


def top(counted: Counter[str], total: int) -> list[tuple[str, float]]:
    return [(name, 100 * times / total) for name, times in counted.most_common(ROWS)]


if __name__ == "__main__":
    sys.exit(main())
