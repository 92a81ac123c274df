"""The admin listener from before the start of the broker until after its end.

The socket is bound first, so that its port is known and a port in use is reported at once. The HTTP
server, which takes 0.3 s to import, starts when the broker is ready, or earlier if the start takes
long, so that /readyz can say why.
"""

import asyncio
import importlib
import socket
from typing import TYPE_CHECKING

from odradek_broker.admin.state import Readiness
from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.runtime.settings import Settings

if TYPE_CHECKING:
    from odradek_broker.admin.server import AdminServer


class StartError(Exception):
    """The broker cannot start; the text is the one line that the user sees."""


class AdminFront:
    def __init__(self, settings: Settings) -> None:
        self.readiness = Readiness()
        self._server: AdminServer | None = None
        self._socket = _bind(settings)

    @property
    def address(self) -> str | None:
        if self._socket is None:
            return None
        host, port = self._socket.getsockname()[:2]
        return f"{host}:{port}"

    async def start(self) -> None:
        """Calling it again has no effect."""
        if self._socket is None or self._server is not None:
            return
        # In a thread, because the import takes longer than clients should wait for a response.
        module = await asyncio.to_thread(importlib.import_module, "odradek_broker.admin.server")
        if self._server is not None:
            return
        server: AdminServer = module.AdminServer(self.readiness)
        self._server = server
        await server.start(self._socket)

    def attach(self, context: BrokerContext) -> None:
        if self._server is not None:
            self._server.attach(context)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
        elif self._socket is not None:
            self._socket.close()


def _bind(settings: Settings) -> socket.socket | None:
    address = settings.str("odradek.admin.listener")
    if not address:
        return None
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise StartError(f"odradek.admin.listener: {address!r} is not host:port")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host.strip("[]"), int(port)))
        sock.listen()
    except OSError as error:
        sock.close()
        raise StartError(
            f"odradek.admin.listener: cannot bind {address}: {error.strerror}"
        ) from error
    return sock
