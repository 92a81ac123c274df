"""The cost of a computation, counted in steps instead of seconds, which depend on the load.

    with Steps() as small: decide(5_000)
    with Steps() as large: decide(10_000)
    grows_linearly(small, large)              # twice as many partitions, about twice the steps

A step is an executed line of Python, comprehensions and generators included. Work inside
one call to C (`x in a_list`) is one step. Compiled modules have no lines: tests import sources.
"""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any, Self

TOLERANCE = 1.15  # for constant costs; quadratic growth would give 2.0


class Steps:
    """Counts the lines that this thread executes in frames that begin inside of the block."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += 1
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += 1
        return self._line


def grows_linearly(small: Steps, large: Steps, times: int = 2) -> None:
    """`large` is `times` as much of the same."""
    assert large.count <= small.count * times * TOLERANCE, (small.count, large.count)
