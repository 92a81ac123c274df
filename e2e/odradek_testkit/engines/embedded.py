"""Our own broker as a process on free ports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek_cli.processes import BrokerProcess
from odradek_testkit.engines.server import Server, server_directory


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
