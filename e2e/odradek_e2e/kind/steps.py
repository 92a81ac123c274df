"""The steps of `make kind-up`. Each knows whether it is done and how long it takes on two idle
cores, so that the command can print an estimate and continue after an interruption.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One step of `make kind-up`; skipped if it is done already."""

    name: str
    seconds: int  # on two idle cores
    is_done: Callable[[], bool]
    do: Callable[[], None]


def carry_out(steps: Sequence[Step]) -> None:
    to_do = [step for step in steps if not step.is_done()]
    left = sum(step.seconds for step in to_do)
    if to_do:
        say(f"{len(to_do)} of {len(steps)} steps to do, about {minutes(left)} on two idle cores")
    for number, step in enumerate(steps, 1):
        if step.is_done():  # also by what a step before it found
            continue
        say(f"[{number}/{len(steps)}] {step.name} (about {minutes(step.seconds)}) …")
        began = time.monotonic()
        step.do()
        left = max(0, left - step.seconds)
        rest = f"; about {minutes(left)} left" if left else ""
        say(f"[{number}/{len(steps)}] {step.name}: {minutes(time.monotonic() - began)}{rest}")


def minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 90 else f"{whole // 60} min {whole % 60:02} s"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
