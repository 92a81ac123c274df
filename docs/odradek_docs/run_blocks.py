"""Runs the marked blocks of pages: `python -m odradek_docs.run_blocks [PAGE…]` (`make docs-check`).

The shell blocks of a page run in order in a scratch directory that looks like the repository's
root: `.venv`, and copies of examples/, crds/ and charts/. `.venv/bin` is on the PATH. Port 9092 is
replaced by a free one, in the text of the blocks and as the default of broker and command line, so
that a broker that runs on this machine is not in the way; 9093 by another, in the text. Every
process that a page started is ended with the page.

YAML blocks are given to odradek_api.parse.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import yaml

from odradek_api.base import API_VERSION, InvalidManifestError
from odradek_api.parse import parse
from odradek_docs.blocks import SHELL, Block, blocks_of
from odradek_docs.repository_links import ROOT

DEFAULT_PORT = "9092"
SECOND_PORT = "9093"  # of a second listener
BLOCK_SECONDS_MAX = 180.0  # a block that hangs is ended; the slowest takes some 10 s
STOP_SECONDS_MAX = 20.0  # brokers hand over and flush before they end
_POLL_SECONDS = 0.05
_SINGLE_BROKER = "broker run"
_MARK_VARIABLE = "ODRADEK_DOCS_CHECK"  # in the environment of all processes of a page


class BlockError(Exception):
    """A block that failed; the text says where and what it printed."""


def pages_with_blocks() -> list[Path]:
    """All Markdown files of the repository that have a marked block."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages += sorted((ROOT / "examples").rglob("*.md"))
    return [page for page in pages if _blocks(page)]


def run_page(page: Path) -> int:
    """Runs the blocks of a page and returns their number. Raises BlockError."""
    blocks = _blocks(page)
    with _Session() as session:
        for block in blocks:
            if block.verb == "file":
                assert block.file is not None
                (session.directory / block.file).write_text(session.with_port(block.text))
            elif block.verb == "output":
                session.expect(block)
            elif block.language in SHELL:
                session.run(block)
            else:
                check_manifests(block)
    return len(blocks)


def check_manifests(block: Block) -> None:
    """Every document of a YAML block has to be a resource of ours that can be used."""
    try:
        for document in yaml.safe_load_all(block.text):
            if block.kind:
                document = {"kind": block.kind, "metadata": {"name": "example"}, **document}
                document["apiVersion"] = API_VERSION
            if parse(document, block.where) is None:
                raise BlockError(f"{block.where}: a manifest of another API group")
    except (InvalidManifestError, yaml.YAMLError) as error:
        raise BlockError(f"{block.where}: {error}") from None


def _blocks(page: Path) -> list[Block]:
    return blocks_of(str(page.relative_to(ROOT)), page.read_text())


class _Session:
    """The scratch directory of a page, and the processes that its blocks started."""

    def __enter__(self) -> _Session:
        self._token = uuid.uuid4().hex
        self._port = str(_free_port())
        self._second_port = str(_free_port())
        self._output = ""
        self._background: list[subprocess.Popen[bytes]] = []
        self.directory = Path(tempfile.mkdtemp(prefix="odradek-docs-"))
        for name in ("examples", "crds", "charts"):
            ignored = shutil.ignore_patterns(".odradek", "__pycache__")
            shutil.copytree(ROOT / name, self.directory / name, ignore=ignored)
        (self.directory / ".venv").symlink_to(ROOT / ".venv")
        return self

    def __exit__(self, *_: object) -> None:
        _end_processes(self._token, self._background)
        shutil.rmtree(self.directory, ignore_errors=True)

    def with_port(self, text: str) -> str:
        text = re.sub(rf"\b{SECOND_PORT}\b", self._second_port, text)
        return re.sub(rf"\b{DEFAULT_PORT}\b", self._port, text)

    def run(self, block: Block) -> None:
        with _output_file() as path:
            with path.open("wb") as output:
                process = subprocess.Popen(
                    ["bash", "-euo", "pipefail", "-c", self.with_port(block.text)],
                    cwd=self.directory,
                    env=self._environment(block),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            self._background.append(process)
            self._wait(block, process, path)
            self._output = path.read_text(errors="replace")

    def expect(self, block: Block) -> None:
        """Every line of an output block is in what the block before it printed."""
        for line in filter(None, map(str.strip, self.with_port(block.text).splitlines())):
            pattern = ".*".join(re.escape(part) for part in line.split("…"))
            if not re.search(pattern, self._output):
                raise BlockError(f"{block.where}: not printed: {line}\n{self._output}")

    def _environment(self, block: Block) -> dict[str, str]:
        # Only of a single broker: the local runtime gives each of its brokers a port itself.
        listeners = {"KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{self._port}"}
        # A file has listeners of its own, with the port of this page.
        by_default = _SINGLE_BROKER in block.text and f"{_SINGLE_BROKER} -c " not in block.text
        return (os.environ | listeners if by_default else os.environ) | {
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ.get('PATH', '')}",
            "ODRADEK_BOOTSTRAP": f"127.0.0.1:{self._port}",
            "COLUMNS": "200",  # tables are not wrapped
            _MARK_VARIABLE: self._token,
        }

    def _wait(self, block: Block, process: subprocess.Popen[bytes], path: Path) -> None:
        deadline = time.monotonic() + BLOCK_SECONDS_MAX
        while process.poll() is None:
            if block.until is not None and block.until in path.read_text(errors="replace"):
                return
            if time.monotonic() > deadline:
                raise BlockError(f"{block.where}: still running\n{path.read_text()}")
            time.sleep(_POLL_SECONDS)
        printed = path.read_text(errors="replace")
        if process.returncode != 0 or (block.until is not None and block.until not in printed):
            raise BlockError(f"{block.where}: exit code {process.returncode}\n{printed}")


@contextmanager
def _output_file() -> Iterator[Path]:
    """A file and not a pipe: processes in the background hold it open after the block."""
    handle, name = tempfile.mkstemp(prefix="odradek-docs-output-")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        os.unlink(name)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _end_processes(token: str, started: list[subprocess.Popen[bytes]]) -> None:
    """SIGTERM to every process with the page's mark, then SIGKILL to those that stay."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + STOP_SECONDS_MAX
        for pid in _marked(token):
            _signal(pid, number)
        while _marked(token) and time.monotonic() < deadline:
            for process in started:
                process.poll()  # reaps it
            time.sleep(_POLL_SECONDS)
    for process in started:
        process.wait()


def _marked(token: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # ended meanwhile, or another user's
            if process.environ().get(_MARK_VARIABLE) == token:
                found.append(process.pid)
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def main(arguments: list[str]) -> int:
    pages = [Path(name).resolve() for name in arguments] or pages_with_blocks()
    failed = 0
    for page in pages:
        began = time.monotonic()
        try:
            number = run_page(page)
        except BlockError as error:
            failed += 1
            sys.stderr.write(f"{error}\n")
        else:
            seconds = time.monotonic() - began
            sys.stdout.write(f"{page.relative_to(ROOT)}: {number} blocks, {seconds:.1f} s\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
