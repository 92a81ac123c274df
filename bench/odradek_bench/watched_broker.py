"""A broker whose event loop is measured: every pass that keeps it for long is a line in the log.

    python -m odradek_bench.watched_broker --override …     # as odradek_broker.main

A pass is all that the loop does between two calls of epoll. Its wall time is how long other
clients waited. It consists of:

    cpu     what the loop itself computed; only this is caused by the broker
    queued  the thread could run, but the kernel gave the core to others (schedstat)
    rest    the GIL was held by another thread of this process, or a system call blocked

Lines begin with PASS and are read by `loop_time.py`. ODRADEK_WATCH_STACKS=1 adds what was running.
Collections of the garbage collector that took long are lines, too.
"""

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from odradek_broker import main
from odradek_broker.runtime.event_loop import PollerLoop

PASS = "pass of the loop:"
# Shorter passes are not logged.
PASS_MS_MIN = 20.0
COLLECTION_MS_MIN = 5.0
# A pass that has lasted this long has its stack written down, each few milliseconds.
STACK_FROM_MS = 15.0
STACK_EVERY_SECONDS = 0.004
STACK_FRAMES = 6


def queued_ns() -> int:
    """How long the calling thread waited for a core while it could have run."""
    with open("/proc/thread-self/schedstat", "rb") as file:
        return int(file.read().split()[1])


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class MeasuredEpoll:
    """Takes the place of the poller's epoll object."""

    def __init__(self, epoll: Any) -> None:
        self._epoll = epoll
        self.register = epoll.register
        self.modify = epoll.modify
        self.unregister = epoll.unregister
        self.close = epoll.close
        self.began_ns = 0  # 0 while the loop waits for events
        self._cpu_ns = 0
        self._queued_ns = 0
        self.stacks: list[str] = []
        self.handles: list[tuple[float, str]] = []

    def poll(self, timeout: float, maxevents: int) -> Any:
        if self.began_ns:
            self._ended(time.monotonic_ns() - self.began_ns)
        self.began_ns = 0
        self.handles.clear()
        ready = self._epoll.poll(timeout, maxevents)
        self._cpu_ns = time.thread_time_ns()
        self._queued_ns = queued_ns()
        self.began_ns = time.monotonic_ns()
        return ready

    def _ended(self, wall_ns: int) -> None:
        if wall_ns < PASS_MS_MIN * 1e6:
            self.stacks.clear()
            return
        cpu = (time.thread_time_ns() - self._cpu_ns) / 1e6
        queued = (queued_ns() - self._queued_ns) / 1e6
        say(f"{PASS} {wall_ns / 1e6:.0f} ms, cpu {cpu:.0f} ms, queued {queued:.0f} ms")
        for wall_ms, name in self.handles:
            say(f"    {wall_ms:.0f} ms in {name}")
        for stack in self.stacks:
            say(f"    {stack}")
        self.stacks.clear()


class MeasuredLoop(PollerLoop):
    """The broker's event loop, whose long passes are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.measured = MeasuredEpoll(self.poller.epoll)
        self.poller.epoll = self.measured  # type: ignore[assignment]
        watch_collector()
        if os.environ.get("ODRADEK_WATCH_STACKS"):
            watch_handles(self.measured)
            main_thread = threading.get_ident()
            threading.Thread(target=sample, args=(self.measured, main_thread), daemon=True).start()


def watch_collector() -> None:
    began = 0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.monotonic_ns()
            return
        lasted = (time.monotonic_ns() - began) / 1e6
        if lasted > COLLECTION_MS_MIN:
            say(f"collection of generation {info['generation']}: {lasted:.0f} ms, "
                f"in {threading.current_thread().name}")  # fmt: skip

    gc.callbacks.append(collected)


def watch_handles(measured: MeasuredEpoll) -> None:
    run: Callable[[asyncio.Handle], None] = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.monotonic_ns()
        name = repr(handle)
        run(handle)
        lasted = (time.monotonic_ns() - began) / 1e6
        if lasted > PASS_MS_MIN / 4:
            measured.handles.append((lasted, name))

    asyncio.Handle._run = timed  # type: ignore[assignment]


def sample(measured: MeasuredEpoll, thread: int) -> None:
    while True:
        time.sleep(STACK_EVERY_SECONDS)
        began = measured.began_ns
        if not began or time.monotonic_ns() - began < STACK_FROM_MS * 1e6:
            continue
        at = (time.monotonic_ns() - began) / 1e6
        frames = sys._current_frames()
        where = " < ".join(stack_of(frames.pop(thread)))
        del frames[threading.get_ident()]
        others = [stack_of(frame)[0] for frame in frames.values()]
        busy = ", ".join(other for other in others if not other.startswith(("wait ", "_worker ")))
        measured.stacks.append(f"{at:.0f}: {where}" + (f" | threads: {busy}" if busy else ""))


def stack_of(frame: FrameType | None) -> list[str]:
    """Without the lines that are running: to ask for those from another thread has crashed Python
    3.11.7."""
    found: list[str] = []
    while frame is not None and len(found) < STACK_FRAMES:
        code = frame.f_code
        found.append(f"{code.co_name} {os.path.basename(code.co_filename)}")
        frame = frame.f_back
    return found


if __name__ == "__main__":
    main.PollerLoop = MeasuredLoop  # type: ignore[attr-defined]
    sys.exit(main.main())
