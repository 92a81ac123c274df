"""Sockets that are ready do their work here, in one pass, and then comes what that work left.

A request costs little when nothing stands between the kernel and it. So client connections are
no callbacks of asyncio: its loop asks this class what is ready (`event_loop.py`), and before the
answer is given each connection has read and handled its requests, and the end of the pass has
come: the deferred writes, the acknowledgements, the answers to send. asyncio hears only of the
files that are its own (adr/0010).
"""

import logging
import select
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

READABLE: Final[int] = select.EPOLLIN
WRITABLE: Final[int] = select.EPOLLOUT
# Sockets per pass. The more there are, the less each one costs; the fewer, the sooner the first
# ones have their answers.
READY_MAX: Final = 256


class Pollable(ABC):
    __slots__ = ()

    @abstractmethod
    def on_ready(self, events: int) -> None:
        """READABLE, WRITABLE, or an error that reading or writing will tell."""


class Poller:
    def __init__(self) -> None:
        self.epoll = select.epoll()
        self._watched: dict[int, Pollable] = {}
        self._soon: list[Callable[[], None]] = []
        self.passes = 0

    def watch(self, fd: int, pollable: Pollable, events: int) -> None:
        """From now on `pollable` hears of these events; of none, if `events` is 0."""
        if fd not in self._watched:
            if events:
                self.epoll.register(fd, events)
                self._watched[fd] = pollable
        elif events:
            self.epoll.modify(fd, events)
        else:
            self.epoll.unregister(fd)
            del self._watched[fd]

    def call_soon(self, callback: Callable[[], None]) -> None:
        """At the end of this pass, after all that was asked for before."""
        self._soon.append(callback)

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Waits that long (-1: for ever) and runs a pass; what is ready of which it knows nothing.

        Whoever called `call_soon` between two passes has had to wait enough.
        """
        if self._soon:
            self._run_soon()
            timeout = 0.0
        unknown: list[tuple[int, int]] = []
        ready = self.epoll.poll(timeout, READY_MAX)
        self.passes += 1
        for fd, events in ready:
            pollable = self._watched.get(fd)
            if pollable is None:
                unknown.append((fd, events))
                continue
            try:
                pollable.on_ready(events)
            except Exception:
                logger.exception("a connection failed; this is a bug in Odradek")
        self._run_soon()
        return unknown

    def _run_soon(self) -> None:
        """All that is due, and what that adds."""
        soon = self._soon
        at = 0
        while at < len(soon):
            try:
                soon[at]()
            except Exception:
                logger.exception("the end of a pass failed; this is a bug in Odradek")
            at += 1
        soon.clear()
