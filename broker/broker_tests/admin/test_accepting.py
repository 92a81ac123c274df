"""The admin listener when descriptors run out, and when one client holds many connections."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from contextlib import ExitStack
from typing import cast

import pytest

from odradek_broker.admin import accepting
from odradek_broker.admin.accepting import CONNECTIONS_MAX, AdminListener


class NoDescriptors:
    """A listening socket that is always readable and whose `accept` always fails."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.write(self._write, b"x")
        self.accepts = 0

    def fileno(self) -> int:
        return self._read

    def setblocking(self, _: bool) -> None:
        pass

    def accept(self) -> tuple[socket.socket, object]:
        self.accepts += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


def test_without_descriptors_accepting_pauses_and_one_line_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "REST_SECONDS", 3600.0)  # longer than the test on a busy machine

    async def story() -> int:
        sock = NoDescriptors()
        listener = AdminListener(cast(socket.socket, sock), asyncio.Protocol)
        for _ in range(200):
            await asyncio.sleep(0.001)
        listener.close()
        return sock.accepts

    assert asyncio.run(story()) == 1
    (record,) = caplog.records
    assert record.getMessage() == (
        "admin listener accepts no connections for 3600 s: Too many open files"
    )
    assert record.exc_info is None


class Counted(asyncio.Protocol):
    open = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Counted.open += 1

    def connection_lost(self, exc: Exception | None) -> None:
        Counted.open -= 1


def test_one_connection_too_many_closes_the_oldest() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0), backlog=200) as sock, ExitStack() as stack:
            listener = AdminListener(sock, Counted)
            clients = []
            for _ in range(CONNECTIONS_MAX + 5):
                client = stack.enter_context(socket.create_connection(sock.getsockname()))
                client.setblocking(False)
                clients.append(client)
            async with asyncio.timeout(20):
                for client in clients[:5]:
                    assert await loop.sock_recv(client, 1) == b""
                while Counted.open != CONNECTIONS_MAX:
                    await asyncio.sleep(0.01)
            with pytest.raises(BlockingIOError):
                clients[5].recv(1)
            listener.close()

    asyncio.run(story())
