"""A TCP proxy in front of a broker that knows who calls, and can keep some callers away.

Cluster tests put one before every node. The caller is known by the client id in its first
request. `block` swallows what it sends and what it would be answered (a network that drops
packets), `cut` closes its connections (a network that says no), `heal` ends both.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress

Says = Callable[[str], bool]  # by client id


def nobody(_client_id: str) -> bool:
    return False


class Proxy:
    def __init__(self, target_port: int = 0) -> None:
        self.target_port = target_port
        self.port = 0
        self._blocked: Says = nobody
        self._cut: Says = nobody
        self._healed = asyncio.Event()
        self._links: dict[asyncio.Task[None], str] = {}

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def block(self, who: Says) -> None:
        self._healed.clear()
        self._blocked = who

    def cut(self, who: Says) -> None:
        self._cut = who
        for task, client_id in tuple(self._links.items()):
            if who(client_id):
                task.cancel()

    def heal(self) -> None:
        self._blocked = self._cut = nobody
        self._healed.set()

    async def stop(self) -> None:
        self._server.close()
        for task in tuple(self._links):
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = ""
        try:
            await self._link(task, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            del self._links[task]
            writer.close()

    async def _link(
        self,
        task: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        head = await reader.readexactly(14)
        (length,) = struct.unpack_from(">h", head, 12)
        name = await reader.readexactly(max(length, 0))
        client_id = self._links[task] = name.decode()
        if self._cut(client_id):
            return
        await self._while_blocked(client_id)
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        there_writer.write(head + name)
        both = [
            asyncio.create_task(self._copy(client_id, reader, there_writer)),
            asyncio.create_task(self._copy(client_id, there_reader, writer)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in both:
                copy.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            there_writer.close()
            with suppress(OSError):
                await there_writer.wait_closed()

    async def _copy(
        self, client_id: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._while_blocked(client_id)
                writer.write(data)
                await writer.drain()

    async def _while_blocked(self, client_id: str) -> None:
        while self._blocked(client_id):
            await self._healed.wait()
