"""A TCP proxy in front of a broker that knows who calls, and can keep some callers away.

Cluster tests put one before every node. The caller is known by the client id in its first
request. `block` holds back what it sends and what it would be answered (a network that drops
packets), `mute` only the answers, `cut` closes its connections (a network that says no), `heal`
ends all of that. What was held back arrives then, late, as after TCP's retransmissions.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

Says = Callable[[str], bool]  # by client id


def nobody(_client_id: str) -> bool:
    return False


class Proxy:
    def __init__(self, target_port: int = 0) -> None:
        self.target_port = target_port
        self.port = 0
        self._blocked: Says = nobody
        self._muted: Says = nobody
        self._cut: Says = nobody
        self._healed = asyncio.Event()
        self._links: dict[asyncio.Task[None], str] = {}
        self._sockets: set[socket.socket] = set()

    async def start(self) -> int:
        listening = self._socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        self.port = listening.getsockname()[1]
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening))
        return self.port

    def block(self, who: Says) -> None:
        self._healed.clear()
        self._blocked = who

    def mute(self, who: Says) -> None:
        """What they ask arrives and is done; they never hear of it."""
        self._healed.clear()
        self._muted = who

    def cut(self, who: Says) -> None:
        self._cut = who
        for task, client_id in tuple(self._links.items()):
            if who(client_id):
                task.cancel()

    def heal(self) -> None:
        self._blocked = self._muted = self._cut = nobody
        self._healed.set()

    async def stop(self) -> None:
        tasks = (self._accepting, *self._links)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in tuple(self._sockets):
            self._close(sock)

    def _socket(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        self._sockets.add(sock)
        return sock

    def _close(self, sock: socket.socket) -> None:
        self._sockets.discard(sock)
        sock.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(listening)
            client.setblocking(False)
            self._sockets.add(client)
            task = loop.create_task(self._link(client))
            self._links[task] = ""
            task.add_done_callback(self._links.pop)

    async def _link(self, client: socket.socket) -> None:
        server = self._socket()
        copies: list[asyncio.Task[None]] = []
        try:
            client_id, sent = await self._first_words(client)
            if self._cut(client_id):
                return
            await self._while_blocked(client_id)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(server, ("127.0.0.1", self.target_port))
            await loop.sock_sendall(server, sent)
            copies += (
                loop.create_task(self._copy(client_id, client, server, self._while_blocked)),
                loop.create_task(self._copy(client_id, server, client, self._while_muted)),
            )
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            return
        finally:
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
            self._close(client)
            self._close(server)

    async def _first_words(self, client: socket.socket) -> tuple[str, bytes]:
        """Who calls, and what it has sent so far: the start of a request header."""
        loop, data = asyncio.get_running_loop(), b""
        while True:
            if len(data) >= 14:
                end = 14 + max(struct.unpack_from(">h", data, 12)[0], 0)
                if len(data) >= end:
                    task = asyncio.current_task()
                    assert task is not None
                    self._links[task] = data[14:end].decode()
                    return self._links[task], data
            more = await loop.sock_recv(client, 1 << 16)
            if not more:
                raise OSError("gone before it said anything")
            data += more

    async def _copy(
        self,
        client_id: str,
        source: socket.socket,
        target: socket.socket,
        hold: Callable[[str], Awaitable[None]],
    ) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while data := await loop.sock_recv(source, 1 << 16):
                await hold(client_id)
                await loop.sock_sendall(target, data)

    async def _while_blocked(self, client_id: str) -> None:
        while self._blocked(client_id):
            await self._healed.wait()

    async def _while_muted(self, client_id: str) -> None:
        while self._blocked(client_id) or self._muted(client_id):
            await self._healed.wait()
