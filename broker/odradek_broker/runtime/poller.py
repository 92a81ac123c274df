"""Polls the sockets and serves those that are ready, all in one pass, then the deferred work.

A request is cheap if little code runs between the kernel and its handler. So client connections are
not callbacks of asyncio: its loop polls through this class (`event_loop.py`), and before the poll
returns, each ready connection has read and handled its requests, and the work at the end of the
pass is done: deferred writes, acknowledgements, sending responses. The poll returns only the files
of asyncio itself (adr/0010).
"""

import logging
import select
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from odradek_broker.runtime import clock

logger = logging.getLogger(__name__)

READABLE: Final[int] = select.EPOLLIN
WRITABLE: Final[int] = select.EPOLLOUT
# Sockets per pass. With more of them each one costs less; with fewer the first ones get their
# responses sooner.
READY_MAX: Final = 256
# A pass that takes longer than this ends early: asyncio's timers (heartbeats, the quorum) and the
# responses that are ready come first, then the remaining sockets.
PASS_NS_MAX: Final = 30_000_000
# The clock is read after every so many sockets.
CLOCK_EVERY: Final = 4


class Pollable(ABC):
    __slots__ = ()

    @abstractmethod
    def on_ready(self, events: int) -> None:
        """READABLE, WRITABLE, or an error that the next recv or send reports."""


class Poller:
    def __init__(self) -> None:
        self.epoll = select.epoll()
        self._watched: dict[int, Pollable] = {}
        self._soon: list[Callable[[], None]] = []
        self.passes = 0
        # Connections of other brokers: after a pass that ended early, they are served first.
        self.urgent: set[int] = set()
        self._left: list[int] = []  # sockets that the last pass did not serve

    def watch(self, fd: int, pollable: Pollable, events: int) -> None:
        """From now on `pollable` gets these events; with `events` 0, none."""
        if fd not in self._watched:
            if events:
                self.epoll.register(fd, events)
                self._watched[fd] = pollable
        elif events:
            self.epoll.modify(fd, events)
        else:
            self.epoll.unregister(fd)
            del self._watched[fd]
            self.urgent.discard(fd)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Calls it at the end of this pass, after earlier callbacks."""
        self._soon.append(callback)

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Waits `timeout` seconds (-1: for ever) and runs a pass; the ready files of asyncio.

        Callbacks that were added between two passes run first.
        """
        if self._soon:
            self._run_soon()
            timeout = 0.0
        if self._left:
            timeout = 0.0
        unknown: list[tuple[int, int]] = []
        ready = self.epoll.poll(timeout, READY_MAX)
        self.passes += 1
        if self._left:
            ready = self._in_turn(ready)
        began_ns = clock.now_ns() if len(ready) > CLOCK_EVERY else 0
        at = 0
        for fd, events in ready:
            at += 1
            pollable = self._watched.get(fd)
            if pollable is None:
                unknown.append((fd, events))
                continue
            try:
                pollable.on_ready(events)
            except Exception:
                logger.exception("a connection failed; this is a bug in Odradek")
            if (
                began_ns
                and at % CLOCK_EVERY == 0
                and clock.now_ns() - began_ns > PASS_NS_MAX
                and at < len(ready)
            ):
                self._leave(ready, at, unknown)
                break
        self._run_soon()
        return unknown

    def _leave(self, ready: list[tuple[int, int]], at: int, unknown: list[tuple[int, int]]) -> None:
        """Ends a long pass: the other sockets wait for the next one, asyncio's files do not."""
        for index in range(at, len(ready)):
            fd, _ = ready[index]
            if fd in self._watched:
                self._left.append(fd)
            else:
                unknown.append(ready[index])

    def _in_turn(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Other brokers first, then sockets that the last pass did not serve, then the others."""
        left: dict[int, int] = {}
        for fd in self._left:
            left[fd] = len(left)
        self._left.clear()
        first: list[tuple[int, int]] = []
        waited: list[tuple[int, tuple[int, int]]] = []
        others: list[tuple[int, int]] = []
        for entry in ready:
            if entry[0] in self.urgent:
                first.append(entry)
            elif entry[0] in left:
                waited.append((left[entry[0]], entry))
            else:
                others.append(entry)
        waited.sort()
        return first + [entry for _, entry in waited] + others

    def _run_soon(self) -> None:
        """Runs all callbacks, including those that they add."""
        soon = self._soon
        at = 0
        while at < len(soon):
            try:
                soon[at]()
            except Exception:
                logger.exception("a callback at the end of a pass failed; this is a bug in Odradek")
            at += 1
        soon.clear()
