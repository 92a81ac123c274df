"""A TCP proxy in front of a broker that can delay or close the connections of some clients.

Cluster tests put one in front of every node. A connection's client is known by the client id in
its first request. `block` holds back requests and answers (a network that drops packets), `mute`
only the answers, `cut` closes the connections (a network that resets them), and `heal` ends all
three. Bytes that were held back arrive then, late, as after TCP's retransmissions.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

ClientFilter = Callable[[str], bool]  # by client id


def no_client(_client_id: str) -> bool:
    return False


class Proxy:
    """Listens on a port of its own and forwards to `target_port`."""

    def __init__(self, target_port: int = 0) -> None:
        self.target_port = target_port
        self.port = 0
        self._blocked: ClientFilter = no_client
        self._muted: ClientFilter = no_client
        self._cut: ClientFilter = no_client
        self._healed = asyncio.Event()
        self._links: dict[asyncio.Task[None], str] = {}
        self._sockets: set[socket.socket] = set()

    async def start(self) -> int:
        listening = self._socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        self.port = listening.getsockname()[1]
        # Not `sock_accept` in a task: cancelled at the wrong moment, it loses an accepted socket.
        asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)
        self._listening = listening
        return self.port

    def block(self, clients: ClientFilter) -> None:
        self._healed.clear()
        self._blocked = clients

    def mute(self, clients: ClientFilter) -> None:
        """Requests arrive and are handled; the answers are held back."""
        self._healed.clear()
        self._muted = clients

    def cut(self, clients: ClientFilter) -> None:
        self._cut = clients
        for task, client_id in tuple(self._links.items()):
            if clients(client_id):
                task.cancel()

    def heal(self) -> None:
        self._blocked = self._muted = self._cut = no_client
        self._healed.set()

    async def stop(self) -> None:
        """May be called again."""
        if self._listening in self._sockets:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())
        tasks = tuple(self._links)
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

    def _accept(self, listening: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):  # the client gave up meanwhile
            client, _ = listening.accept()
            client.setblocking(False)
            self._sockets.add(client)
            task = asyncio.get_running_loop().create_task(self._link(client))
            self._links[task] = ""
            task.add_done_callback(self._links.pop)

    async def _link(self, client: socket.socket) -> None:
        server = self._socket()
        copies: list[asyncio.Task[None]] = []
        try:
            client_id, sent = await self._first_request(client)
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

    async def _first_request(self, client: socket.socket) -> tuple[str, bytes]:
        """The client id in the first request header, and all bytes received so far."""
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
                raise OSError("closed before the first request was complete")
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
