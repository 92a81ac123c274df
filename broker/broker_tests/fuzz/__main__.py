"""Fuzzes with atheris:  make fuzz TARGET=produce MINUTES=5   (all targets without TARGET)

    python -m broker_tests.fuzz --target produce --minutes 5 --corpus DIRECTORY

Each target runs in a process of its own, because libFuzzer ends its process. An input that broke a
target is kept in build/fuzz, and `--input FILE` runs it again. Exit status 1: something broke.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

os.environ["ODRADEK_COMPILED"] = "0"  # coverage is of Python code
MEMORY_MB = 1_500
LENGTH_MAX = 4_096
HANG_S = 30
STRICT = ("broker_tests", "odradek_broker", "odradek_protocol", "odradek_api")
DONE = re.compile(r"^stat::number_of_executed_units:\s+(\d+)", re.MULTILINE)


def fuzz(name: str, seconds: int, directory: Path) -> None:
    """Does not return."""
    import atheris

    with atheris.instrument_imports(include=list(STRICT)):
        from broker_tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    corpus = directory / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    flags = [
        sys.argv[0], str(corpus), f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={LENGTH_MAX}", f"-timeout={HANG_S}", "-print_final_stats=1",
        f"-artifact_prefix={directory}/{name}-",
    ]  # fmt: skip

    def one(data: bytes) -> None:
        target.accepts(data)

    atheris.Setup(flags, one)
    atheris.Fuzz()


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Fuzz what reads bytes of others.")
    parser.add_argument("--target", default="", help="a name, or several with commas; all without")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all of them together")
    parser.add_argument("--corpus", type=Path, default=Path("../build/fuzz"))
    parser.add_argument("--input", type=Path, help="run this file once")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if asked.in_process:
        fuzz(asked.target, int(60 * asked.minutes), asked.corpus)
    from broker_tests.fuzz.targets import TARGETS

    if asked.input is not None:
        print("read" if TARGETS[asked.target].accepts(asked.input.read_bytes()) else "refused")
        return 0
    names = [name for name in asked.target.split(",") if name] or list(TARGETS)
    broken, total, began = [], 0, time.monotonic()
    for name in names:
        executed, text = _in_own_process(name, asked.minutes / len(names), asked.corpus)
        total += executed
        print(f"{name}: {executed:,} executions{', BROKEN' if text else ''}", flush=True)
        if text:
            broken.append(name)
            print(text)
    print(f"{total:,} executions in {time.monotonic() - began:.0f} s, broken: {broken or 'none'}")
    return 1 if broken else 0


def _in_own_process(name: str, minutes: float, corpus: Path) -> tuple[int, str]:
    """How often it ran, and libFuzzer's report if it broke."""
    command = [sys.executable, "-m", "broker_tests.fuzz", "--in-process", "--target", name,
               "--minutes", str(minutes), "--corpus", str(corpus)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = DONE.search(done.stderr)
    report = "" if done.returncode == 0 else (done.stdout + done.stderr)[-4_000:]
    return int(found[1]) if found else 0, report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
