"""The control socket of testing mode: one JSON object per line, and one per answer.

{"do": "fault", "apis": ["PRODUCE"], "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
{"do": "fault", "apis": null, "delay_ms": 100, "brokers": true}
{"do": "fault", "apis": null, "hold": true, "clients": false, "of_brokers": [2, 3]}
{"do": "heal"}
{"do": "advance", "ms": 90000000}
{"do": "free_bytes", "bytes": 0}                     null: what the file system has

Answers: {"ok": true}, or {"error": "…"}.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from odradek_broker.testing.faults import FaultRule
from odradek_broker.testing.mode import TestingMode
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.api_keys import ApiKey


class Control:
    """Serves the socket on the broker's loop; `after` functions make a change take effect now."""

    def __init__(
        self,
        mode: TestingMode,
        *,
        advance: Callable[[int], Awaitable[None]],
        look_at_disks: Callable[[], Awaitable[None]],
    ) -> None:
        self._mode = mode
        self._advance = advance
        self._look_at_disks = look_at_disks
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        path = self._mode.control_path
        if os.path.exists(path):  # of a process that was killed
            os.unlink(path)
        umask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, path)
        finally:
            os.umask(umask)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                try:
                    await self._do(json.loads(line))
                    answer: dict[str, Any] = {"ok": True}
                except (ValueError, KeyError, TypeError) as error:
                    answer = {"error": str(error)}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _do(self, command: dict[str, Any]) -> None:
        action = command.pop("do")
        if action == "fault":
            self._mode.faults.add(_rule(command))
        elif action == "heal":
            self._mode.faults.heal()
        elif action == "advance":
            await self._advance(int(command["ms"]))
        elif action == "free_bytes":
            self._mode.disk.free_bytes = command["bytes"]
            await self._look_at_disks()
        else:
            raise ValueError(f"unknown command {action!r}")


def _rule(command: dict[str, Any]) -> FaultRule:
    apis, error = command.pop("apis"), command.pop("error", None)
    of_brokers = command.pop("of_brokers", None)
    return FaultRule(
        api_keys=None if apis is None else frozenset(ApiKey[name].value for name in apis),
        of_brokers=None if of_brokers is None else frozenset(of_brokers),
        error=None if error is None else ErrorCode[error.lower()],
        **command,
    )
