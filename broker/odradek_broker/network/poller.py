"""All client sockets in one epoll set of our own, which the event loop watches as one file.

A reader of the event loop per socket costs its machinery per request (a quarter of the CPU of
small ones: adr/0008). Here the loop wakes up once, however many sockets have something, and all
of them are served in one pass; at its end `settle` writes what they queued and answers it, without
another turn of the loop.

Like the loop itself it is level-triggered: what is left for later is reported again.
"""

import asyncio
import logging
import select
from collections.abc import Callable
from typing import Final, Protocol

logger = logging.getLogger(__name__)

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
# Sockets per pass: the first one to be served waits for the last before it is answered.
EVENTS_MAX = 256


class Watched(Protocol):
    def on_readable(self) -> None:
        """There are bytes, or the other side is gone."""

    def flush(self) -> None:
        """There is room for more bytes."""

    def close(self, reason: str) -> None: ...


class Poller:
    def __init__(self, loop: asyncio.AbstractEventLoop, settle: Callable[[], None]) -> None:
        self._loop = loop
        self._settle = settle
        self._epoll = select.epoll()
        # Invariant: what is in the epoll set, by its file descriptor, with its events (not 0).
        self._watched: dict[int, tuple[Watched, int]] = {}
        loop.add_reader(self._epoll.fileno(), self._on_events)

    def watch(self, fd: int, events: int, target: Watched) -> None:
        """Be told of these events from now on, and of no others; of none if `events` is 0."""
        known = fd in self._watched
        if events:
            self._watched[fd] = (target, events)
            if known:
                self._epoll.modify(fd, events)
            else:
                self._epoll.register(fd, events)
        elif known:
            del self._watched[fd]
            self._epoll.unregister(fd)

    def close(self) -> None:
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _on_events(self) -> None:
        watched = self._watched
        for fd, happened in self._epoll.poll(0, EVENTS_MAX):
            found = watched.get(fd)  # None: closed by one that was served before it
            if found is None:
                continue
            target, events = found
            try:
                if happened & WRITE:
                    target.flush()
                # An error or the end of the connection is found out by whatever is tried.
                if happened & ~WRITE and events & READ:
                    target.on_readable()
                elif not happened & WRITE:
                    target.flush()
            except Exception:
                logger.exception("serving a connection; this is a bug in Odradek")
                target.close("an error in the broker")
        self._settle()
