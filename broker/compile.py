"""Compiles the broker's hot path: mypyc turns the modules below, as they are, into C.

    python broker/compile.py        # `make compile`; prints where the result is

The result is a copy of both packages in which those modules are extension modules. Brokers that
are started from here use it if it was made from these sources (`odradek_protocol/_compiled.py`);
images contain it. A request then costs half as much CPU: adr/0009 has the numbers, and what a
module must not do. Needs a C compiler, Python's headers and about a minute on two cores. The
extension modules are cached in `$XDG_CACHE_HOME/odradek/compiled`, by a hash of their sources.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from odradek_protocol._compiled import COMPILED, PACKAGES, SOURCES
from odradek_protocol._compiled import is_current as sources_are_copied

ROOT = SOURCES.parent
MADE_OF = "made-of"  # file with the hash, next to the packages

# The path of a produce or fetch request on leader and follower, and the cleaner.
MODULES = (
    *("odradek_protocol/varint", "odradek_protocol/byte_range", "odradek_protocol/primitives"),
    "odradek_protocol/messages/headers",
    *("odradek_protocol/records/record_batch", "odradek_protocol/records/records"),
    *("odradek_protocol/messages/produce", "odradek_protocol/messages/fetch"),
    "odradek_protocol/messages/fetch_response",
    *(
        f"odradek_broker/{module}"
        for module in (
            "model/log_config",
            *("runtime/clock", "runtime/metrics", "runtime/poller", "runtime/tls_socket"),
            *("log/types", "log/room", "log/recent", "log/batches", "log/producer_state"),
            "log/leader_epochs",
            *("log/index_file", "log/offset_index", "log/time_index"),
            *("log/segment", "log/rolling", "log/record_walk", "log/validation"),
            *("log/state", "log/flushing", "log/appending", "log/reading", "log/log"),
            *("log/offset_map", "log/record_columns", "log/cleaner"),
            *("partition/waiting", "partition/leader_events", "partition/leader_state"),
            *("partition/load", "partition/partition", "partition/hosted"),
            *("partition/write_pass", "partition/isolation"),
            *("partition/service", "partition/follower_state", "partition/read_replica"),
            "security/authorizer",
            *("handlers/context", "handlers/handler", "handlers/produce"),
            "handlers/topic_access",
            *("handlers/fetch_records", "handlers/fetch_throttle", "handlers/fetch_follower"),
            *("handlers/fetch_consumer", "handlers/fetch_metrics"),
            *("handlers/fetch_session", "handlers/fetch"),
            "handlers/envelope",  # a class that is not compiled cannot inherit from a compiled one
            *("network/memory", "network/large_frame", "network/exchange", "network/outgoing"),
            *("network/connection", "network/tls_connection", "network/dispatcher"),
            "network/server",
            *("replication/followed", "replication/leader_calls", "replication/answers"),
            "replication/fetcher",
        )
    ),
)

# One C file per module, and as many compilers at a time as there are cores.
SETUP = """
import os
from concurrent.futures import ThreadPoolExecutor
from mypyc.build import mypycify
from setuptools import setup
from setuptools.command.build_ext import build_ext

class InParallel(build_ext):
    def build_extensions(self):
        compile_one, link, running = self.compiler._compile, self.compiler.link_shared_object, []
        def link_when_compiled(*arguments, **settings):
            while running:
                running.pop().result()
            link(*arguments, **settings)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            self.compiler._compile = lambda *one: running.append(pool.submit(compile_one, *one))
            self.compiler.link_shared_object = link_when_compiled
            super().build_extensions()

modules = mypycify({arguments!r}, opt_level="3", debug_level="0", multi_file=True,
                   group_name="odradek_protocol.hot")
for module in modules:  # mypyc names the group's header without its directory
    module.include_dirs.append("build/odradek_protocol")
setup(name="odradek_broker_compiled", packages=[], ext_modules=modules,
      cmdclass={{"build_ext": InParallel}})
"""


def missing() -> str:
    """The Debian package that this machine lacks; empty if it has everything."""
    if shutil.which("cc") is None:
        return "gcc"
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return "" if headers.exists() else "python3-dev"


def cache_dir() -> Path:
    """The directory for the extension modules of exactly these sources; may not exist yet."""
    digest = hashlib.sha256(f"{sys.version}\n{sysconfig.get_platform()}\n".encode())
    paths = [SOURCES / f"{module}.py" for module in MODULES]
    for path in (Path(__file__), ROOT / "requirements.lock", *paths):
        digest.update(path.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "odradek" / "compiled" / digest.hexdigest()[:16]


def compile_package() -> None:
    partial = COMPILED.with_name(f"{COMPILED.name}.partial")
    cache = cache_dir()
    cache.parent.mkdir(parents=True, exist_ok=True)
    with open(cache.with_suffix(".lock"), "w") as lock:
        # two builds of the same sources at once: the second waits and reuses the first
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_current():  # by now
            return
        shutil.rmtree(partial, ignore_errors=True)
        for package in PACKAGES:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(SOURCES / package, partial / package, ignore=ignore)
        if not cache.is_dir():
            build_extensions(partial)
            keep(partial, cache)
        shutil.copytree(cache, partial, dirs_exist_ok=True)
        (partial / MADE_OF).write_text(cache.name)
        shutil.rmtree(COMPILED, ignore_errors=True)
        partial.rename(COMPILED)


def build_extensions(directory: Path) -> None:
    """Compile the modules in this directory, next to their sources."""
    print(
        f"Compiling {len(MODULES)} modules of the broker (a minute on two cores) …", file=sys.stderr
    )
    paths = [f"{module}.py" for module in MODULES]
    setup = SETUP.format(arguments=[f"--config-file={ROOT / 'pyproject.toml'}", *paths])
    done = subprocess.run(
        [sys.executable, "-c", setup, "build_ext", "--inplace"],
        cwd=directory,
        # Not the compiler that Python itself was built with: it may not be installed.
        env={"CC": "cc", **os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout[-4000:]}\nthe broker's hot path could not be compiled")
    shutil.rmtree(directory / "build")


def keep(directory: Path, cache: Path) -> None:
    """Moves the result into the cache, unless a build of another checkout was faster."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{cache.name}-", dir=cache.parent))
    for path in directory.rglob("*.so"):
        kept = partial / path.relative_to(directory)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, kept)
    try:
        partial.rename(cache)
    except OSError:
        shutil.rmtree(partial)
        if not cache.is_dir():
            raise


def is_current() -> bool:
    """Whether the compiled copy was made from these sources with this program."""
    made_of = COMPILED / MADE_OF
    return sources_are_copied() and made_of.exists() and made_of.read_text() == cache_dir().name


def main() -> None:
    if not is_current():
        package = missing()
        if package and not cache_dir().is_dir():
            print(f"The broker runs from its sources, at half of its speed, where it cannot be "
                  f"compiled: apt-get install -y {package}", file=sys.stderr)  # fmt: skip
            sys.exit(1 if os.environ.get("ODRADEK_REQUIRE_TOOLS") else 0)
        compile_package()
    print(COMPILED)


if __name__ == "__main__":
    main()
