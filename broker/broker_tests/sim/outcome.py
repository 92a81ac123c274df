"""The report of a simulated run: the failure, if any, and how to reproduce it."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_tests.sim.faults import Fault


@dataclass
class RunOutcome:
    seed: int | str
    failure: str | None = None
    trace_hash: str = ""
    trace: list[str] = field(default_factory=list)
    faults: tuple[Fault, ...] = ()
    events: int = 0
    healed_in_ms: int = 0
