"""Compiles the broker's hot path: mypyc turns the modules below, as they are, into C.

    python broker/compile.py [--into DIRECTORY]        # `make compile`

The result is a copy of the whole package in which those modules are extension modules. It is used
in place of the sources if it was made of just them (`odradek_broker/__init__.py`); images have it
only (--into). A request costs half of the CPU so: adr/0009 has the numbers, and what a module must
not do to be compiled. Needs a C compiler and Python's headers; about two minutes.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "odradek_broker"
ROOT = PACKAGE.parents[1]
COMPILED = ROOT / "build" / "compiled"

# What a produce or fetch request passes through on leader and follower, and the cleaner.
MODULES = (
    "model/log_config",
    *("runtime/clock", "runtime/metrics"),
    *("wire/varint", "wire/primitives", "wire/headers", "wire/record_batch", "wire/records"),
    *("wire/produce", "wire/fetch", "wire/fetch_response"),
    *("log/types", "log/recent", "log/batches", "log/producer_state", "log/segment"),
    *("log/rolling", "log/reading", "log/validation", "log/log"),
    *("log/offset_map", "log/record_columns", "log/cleaner"),
    *("partition/waiting", "partition/replica_state", "partition/partition", "partition/service"),
    *("partition/follower_state", "partition/read_replica"),
    *("handlers/context", "handlers/produce", "handlers/fetch_session", "handlers/fetch"),
    *("network/memory", "network/exchange", "network/connection", "network/dispatcher"),
    *("network/server", "replication/fetcher"),
)

SETUP = """
from mypyc.build import mypycify
from setuptools import setup
modules = mypycify({arguments!r}, opt_level="3", debug_level="0", group_name="odradek_broker.hot")
setup(name="odradek_broker_compiled", packages=[], ext_modules=modules)
"""


def compile_into(target: Path) -> None:
    """Replaces `target` with a directory that holds the compiled package."""
    began_ns = time.time_ns()
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, partial / PACKAGE.name, ignore=ignored)
    paths = [f"{PACKAGE.name}/{module}.py" for module in MODULES]
    setup = SETUP.format(arguments=[f"--config-file={ROOT / 'pyproject.toml'}", *paths])
    command = [sys.executable, "-c", setup, "build_ext", "--inplace"]
    done = subprocess.run(
        command,
        cwd=partial,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout[-4000:]}\nthe broker's hot path could not be compiled")
    shutil.rmtree(partial / "build")
    # Sources that change while they are compiled are newer than this.
    os.utime(partial, ns=(began_ns, began_ns))
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=COMPILED)
    target = parser.parse_args().into
    print(f"Compiling {len(MODULES)} modules of the broker (about two minutes) …", file=sys.stderr)
    target.parent.mkdir(parents=True, exist_ok=True)
    compile_into(target)


if __name__ == "__main__":
    main()
