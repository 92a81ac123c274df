"""Signals that end a member of a group, at a point where nothing is half done."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Self


class LeavesOnSignal:
    """In this block these signals run `finally` clauses and end the command.

    Inside of `whole()` the first signal takes effect at its end, so that what is done there is not
    left half done; a second one takes effect at once. The exit code is 143 for SIGTERM; SIGINT is
    KeyboardInterrupt, as everywhere.
    """

    def __init__(self, *signals: signal.Signals) -> None:
        self._signals = signals
        self._held = False
        self._came: int | None = None

    def __enter__(self) -> Self:
        self._before: dict[signal.Signals, Any] = {
            one: signal.signal(one, self._signalled) for one in self._signals
        }
        return self

    def __exit__(self, *_: object) -> None:
        for one, before in self._before.items():
            signal.signal(one, before)

    @contextmanager
    def whole(self) -> Iterator[None]:
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._came is not None:
            self._leave(self._came)

    def _signalled(self, number: int, _: object) -> None:
        first, self._came = self._came is None, number
        if not (self._held and first):
            self._leave(number)

    def _leave(self, number: int) -> NoReturn:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)
