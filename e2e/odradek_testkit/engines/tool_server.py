"""Runs Apache Kafka's tools in one JVM per test process (kafka-tools/server/ToolServer.java).

The start of a JVM is most of a tool's CPU: one call costs 1.2 s in a JVM of its own and 0.1 s here.
The tools are the unmodified classes of the jars; the server only takes the place of System.exit.
It ends with this process, because its standard input does.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import selectors
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

LENGTH = struct.Struct(">i")


class ToolServerError(Exception):
    """The server ended in the middle of a tool; the text has the tool's name."""


def compiled(name: str, sources: Sequence[Path], jars: Path) -> Path | None:
    """The jar with their classes, compiled once per content; None where there is no compiler.

    Not a directory: Java archives no classes when one is in the class path.
    """
    javac = shutil.which("javac")
    if javac is None:
        return None
    digest = hashlib.sha256(f"{Path(javac).resolve()}\n".encode())
    for source in sources:
        digest.update(source.read_bytes())
    made = jars.with_name(f"{jars.name}-{name}-{digest.hexdigest()[:8]}.jar")
    if made.exists():
        return made
    with (
        open(made.with_suffix(".lock"), "w") as lock,
        tempfile.TemporaryDirectory(prefix="classes-", dir=jars.parent) as partial,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            classes = Path(partial) / "classes"
            subprocess.run(
                [javac, "-J-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", "-d", classes, *sources],
                check=True,
                timeout=120,
            )
            Path(shutil.make_archive(str(classes), "zip", classes)).rename(made)
    return made


class ToolServer:
    """One JVM; `run` returns None while it runs a tool for another thread."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        atexit.register(self.close)

    def run(
        self, words: Sequence[str], stdin: bytes, timeout_s: float
    ) -> subprocess.CompletedProcess[bytes] | None:
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
                )
            return self._ask(self._process, words, stdin, time.monotonic() + timeout_s)
        except BaseException:
            self.close()
            raise
        finally:
            self._lock.release()

    def _ask(
        self,
        process: subprocess.Popen[bytes],
        words: Sequence[str],
        stdin: bytes,
        give_up: float,
    ) -> subprocess.CompletedProcess[bytes]:
        assert process.stdin is not None
        parts = [word.encode() for word in words] + [stdin]
        framed = b"".join(LENGTH.pack(len(part)) + part for part in parts)
        request = memoryview(LENGTH.pack(len(words)) + framed)
        try:
            while request:
                request = request[process.stdin.write(request) :]
        except BrokenPipeError:
            raise ToolServerError(f"{words[0]}: the JVM has ended") from None
        (code,) = LENGTH.unpack(self._read(process, 4, words, give_up))
        out, err = (
            self._read(process, LENGTH.unpack(self._read(process, 4, words, give_up))[0], words,
                       give_up)
            for _ in range(2)
        )  # fmt: skip
        return subprocess.CompletedProcess(list(words), code, out, err)

    def _read(
        self, process: subprocess.Popen[bytes], size: int, words: Sequence[str], give_up: float
    ) -> bytes:
        assert process.stdout is not None
        found = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while len(found) < size:
                if not selector.select(max(0.0, give_up - time.monotonic())):
                    raise subprocess.TimeoutExpired(list(words), 0.0, bytes(found))
                part = process.stdout.read(size - len(found))
                if not part:
                    raise ToolServerError(
                        f"{words[0]} ended the JVM that it shares with other tools: "
                        "call kafka_tool(…, own_jvm=True)"
                    )
                found += part
        return bytes(found)

    def end(self) -> None:
        """The JVM ends by itself, as with an archive of its classes that it writes then."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
        self.close()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
