"""Accepts connections for the admin server, a limited number of them.

When the process has no file descriptors left, asyncio's own accept keeps logging a traceback for
each place in its backlog (60,000 in 30 s). Here a connection beyond CONNECTIONS_MAX closes the
oldest one, so that clients that hold connections open cannot block health probes; after an accept
that failed, accepting pauses for a second, and that is logged once a minute.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Final

from odradek_broker.runtime.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)

# File descriptors for this many are reserved (runtime/descriptors.py).
CONNECTIONS_MAX: Final = 32
REST_SECONDS: Final = 1.0


class AdminListener:
    def __init__(
        self, sock: socket.socket, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._sock = sock
        self._protocol_factory = protocol_factory
        self._loop = asyncio.get_running_loop()
        self._limited = RateLimitedLog(logger)
        self._transports: list[asyncio.BaseTransport] = []  # the oldest first
        self._tasks: set[asyncio.Task[None]] = set()
        self._resting: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            self._rest(error)
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._serve(sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _rest(self, error: OSError) -> None:
        self._limited.error(
            "rest",
            time.monotonic() * 1000,
            "admin listener accepts no connections for %.0f s: %s",
            REST_SECONDS,
            error.strerror,
        )
        self._loop.remove_reader(self._sock.fileno())
        self._resting = self._loop.call_later(
            REST_SECONDS, self._loop.add_reader, self._sock.fileno(), self._accept
        )

    async def _serve(self, sock: socket.socket) -> None:
        try:
            transport, _ = await self._loop.connect_accepted_socket(self._protocol_factory, sock)
        except OSError:
            sock.close()
            return
        except asyncio.CancelledError:  # the broker stops
            sock.close()
            raise
        self._transports = [t for t in self._transports if not t.is_closing()]
        if len(self._transports) >= CONNECTIONS_MAX:
            self._transports.pop(0).close()
        self._transports.append(transport)
