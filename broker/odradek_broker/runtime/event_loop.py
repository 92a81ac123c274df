"""asyncio's event loop on top of the poller, which serves client connections itself."""

import asyncio
import math
import select
import selectors
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from odradek_broker.runtime.poller import Poller
from odradek_broker.runtime.tasks import Cancellable

READ_EVENTS = ~select.EPOLLOUT  # errors and hang-ups wake readers, as in asyncio's own selector
WRITE_EVENTS = ~select.EPOLLIN


class PollerSelector(selectors.BaseSelector):
    """The files that asyncio itself watches, in the poller's epoll set."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        if fd in self._keys:
            raise KeyError(f"file {fd} is registered already")
        self._poller.epoll.register(fd, _epoll_events(events))
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = self._key(fileobj).fd
        self._poller.epoll.modify(fd, _epoll_events(events))
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = self._key(fileobj)
        del self._keys[key.fd]
        with suppress(OSError):  # it was closed before, which removed it from the set
            self._poller.epoll.unregister(key.fd)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Rounded up: if it returned too early, asyncio would find no timer due and poll again.
        seconds = -1.0 if timeout is None else max(0.0, math.ceil(timeout * 1e3) * 1e-3)
        ready = []
        for fd, events in self._poller.poll(seconds):
            key = self._keys.get(fd)
            if key is None:
                continue  # a connection that another one closed earlier in this pass
            found = selectors.EVENT_READ if events & READ_EVENTS else 0
            found |= selectors.EVENT_WRITE if events & WRITE_EVENTS else 0
            if found & key.events:
                ready.append((key, found & key.events))
        return ready

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()
        self._poller.epoll.close()

    def _key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj if isinstance(fileobj, int) else fileobj.fileno()]


def _epoll_events(events: int) -> int:
    readable = select.EPOLLIN if events & selectors.EVENT_READ else 0
    return readable | (select.EPOLLOUT if events & selectors.EVENT_WRITE else 0)


class PollerLoop(asyncio.SelectorEventLoop):
    """The loop of a broker."""

    def __init__(self) -> None:
        self.poller = Poller()
        super().__init__(PollerSelector(self.poller))


class EndOfPass:
    """A `Scheduler` (tasks.py) whose `call_soon` runs at the end of the poller's pass."""

    def __init__(self, loop: PollerLoop) -> None:
        self.call_soon: Callable[[Callable[[], None]], object] = loop.poller.call_soon
        self._loop = loop

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Cancellable:
        return self._loop.call_later(delay, callback, *args)
