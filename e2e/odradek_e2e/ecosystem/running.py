"""Programs of others that run until they are killed, and what is waited for while they run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_e2e.ecosystem.contract import Check, Unexpected
from odradek_testkit.waiting import wait_until

DEADLINE_S = 240.0  # JVMs and rebalances on a busy machine; a healthy program needs a tenth
POLL_S = 0.5
STOP_S = 60.0


class Running:
    """One process with a log; leaving the context kills it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._command = list(command)
        self._directory = directory
        self._env = {**os.environ, **(env or {})}
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self._process is None, f"{self.name} runs already"
        self._directory.mkdir(parents=True, exist_ok=True)
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, cwd=self._directory, env=self._env
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9: the program writes nothing more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGTERM, so that the program leaves its group; killed if it does not end."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise Unexpected(f"{self.name} does not end after SIGTERM: {self.tail()}") from None
        finally:
            self.kill()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Until the condition holds; fails at once when the program has ended."""

        def holds() -> bool:
            if condition():
                return True
            code = self._process.poll() if self._process is not None else None
            if code is not None:
                raise Unexpected(f"{self.name} ended with exit code {code}: {self.tail()}")
            return False

        try:
            wait_until(holds, what, DEADLINE_S, poll_s=POLL_S)
        except Unexpected:
            raise
        except AssertionError as late:
            raise Unexpected(f"{late}; the end of its log: {self.tail()}") from None

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-1500:] if self._log.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


class Checks:
    """The checks of a case in order; those after a failed one are failed as not reached."""

    def __init__(self) -> None:
        self.found: list[Check] = []

    def run(self, name: str, work: Callable[[], object]) -> None:
        before = next((check for check in self.found if check.state == "failed"), None)
        if before is not None:
            self.found.append(Check(name, "failed", f"not reached, {before.name} failed"))
            return
        try:
            work()
        except Unexpected as wrong:
            self.found.append(Check(name, "failed", str(wrong)))
        else:
            self.found.append(Check(name, "ok"))
