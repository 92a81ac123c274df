"""Our own broker as a process on free ports.

It is forked from a process that has imported the broker (odradek_testkit.launching), which saves
0.4 s of CPU per start, and ends with the test run. A broker with an environment of its own, or
with another command around it, is a process like that of a user: `python -m odradek_broker.main`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek_cli.processes import BROKER_MODULE, BrokerProcess, ChildProcess
from odradek_testkit.engines.server import Server, server_directory
from odradek_testkit.launching import launcher


class RunningBroker(BrokerProcess, Server):
    """One broker that is its own controller; `overrides` are its settings."""

    def __init__(
        self,
        overrides: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = server_directory(directory)
        settings = {"log.dirs": str(self.data_dir), **(overrides or {})}
        super().__init__(settings, self.directory / "server.out", env)

    def spawn(self, command: Sequence[str], *, stdout: int | None = None) -> ChildProcess:
        imported = list(command[:3]) == [sys.executable, "-m", BROKER_MODULE]
        command = [*command, *self.extra_flags()]
        if not imported or self.wrapper or self.env:
            return super().spawn(command, stdout=stdout)
        assert self.process is None, f"{self.name} is already running"
        self.process = launcher().start(
            {"broker": command[3:]}, self.log_path, {}, pipe=stdout is not None
        )
        return self.process

    def extra_flags(self) -> Sequence[str]:
        """Flags of the broker that are not settings."""
        return ()
