"""`odradek local up --console`: the web console next to the runtime, as a process of its own.

console = LocalConsole(directory, state, "127.0.0.1:8080")
console.show(report)      # after each pass: it starts when a cluster has addresses
console.close()
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.errors import UsageError
from odradek_cli.extras import needs_extra
from odradek_cli.output import remarks

if TYPE_CHECKING:
    from odradek_operator.local.report import Report

READY = "ready: "
STOP_S = 10.0

WithConsole = Annotated[
    bool, typer.Option("--console", help="Serve the web console, too; needs odradek[console].")
]
ConsoleListen = Annotated[
    str, typer.Option("--console-listen", metavar="HOST:PORT", help="Where, with --console.")
]
CONSOLE_LISTEN = "127.0.0.1:8080"


class LocalConsole:
    def __init__(self, files: list[Path], state: Path, listen: str, *, detach: bool) -> None:
        """Raises UsageError, CliError."""
        with needs_extra("console", "odradek local up --console"):
            import jinja2  # noqa: F401
        from odradek_operator.local.runtime import DEFAULT_STATE

        self._manifests = files[0].resolve()
        if detach:
            raise UsageError("--console and --detach: start `odradek console --local DIR`")
        # The console looks for the state there.
        if len(files) != 1 or state != self._manifests / DEFAULT_STATE:
            raise UsageError("--console: give one directory of manifests with -f, and no --state")
        self._output = state / "console.out"
        self._listen = listen
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._begun = self._closing = False

    def shown_with(self, show: Callable[[Report], None]) -> Callable[[Report], None]:
        """Both: `show`, and the start of the console."""

        def both(report: Report) -> None:
            show(report)
            self.show(report)

        return both

    def show(self, report: Report) -> None:
        if self._begun:
            return
        for cluster in report.clusters.values():
            listeners = [one for one in cluster.status.listeners if one.bootstrap_servers]
            if not listeners or cluster.status.ready_brokers < 1:
                continue
            self._begun = True
            plain = next((one for one in listeners if one.protocol == "PLAINTEXT"), None)
            if plain is None:
                _say("No console: every listener needs credentials. With those of a KafkaUser: "
                     f"odradek --client-config FILE console --local {self._manifests}")  # fmt: skip
            else:
                self._start(plain.bootstrap_servers)
            return

    def _start(self, bootstrap: str) -> None:
        command = [
            sys.executable, "-m", "odradek_cli", "console", "--bootstrap", bootstrap,
            "--local", str(self._manifests), "--listen", self._listen, "--end-with-stdin",
        ]  # fmt: skip
        with self._output.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True,
                stdin=subprocess.PIPE,  # nothing is written: its end is the end of the runtime
                start_new_session=True,  # Ctrl-C is for the runtime, which ends the console
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        """Its address; or why it ended, which does not end the runtime."""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.startswith(READY):
                    _say(f"Console: {line.removeprefix(READY).strip()}")
        code = process.wait()
        if not self._closing:
            said = self._output.read_text(errors="replace").strip().splitlines()
            _say(f"The console ended with code {code}: {said[-1] if said else 'no reason given'}")

    def close(self) -> None:
        self._closing = True
        if self._process is None or self._reader is None:
            return
        self._process.terminate()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()


def _say(text: str) -> None:
    remarks().print(text, markup=False, highlight=False, soft_wrap=True)
