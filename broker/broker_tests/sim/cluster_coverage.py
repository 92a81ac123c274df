"""Which states a cluster was in when a fault began: a fault that never meets a state tests little.

    make sim SEEDS=300 COVERAGE=1        prints the table (docs/reliability.md has one)

Looking changes nothing: a run with coverage has the same trace as one without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from broker_tests.sim.faults import Fault

if TYPE_CHECKING:
    from broker_tests.sim.cluster_run import ClusterRun

STATES = (
    "calm", "broker down", "no controller", "no leader", "ISR shrunk", "ELR in use",
    "ISR change pending", "uncommitted records", "reassignment", "disk lost something",
    "another fault",
)  # fmt: skip
Met = Counter[tuple[str, str]]  # (kind of fault, state) → how often


def states_of(run: ClusterRun) -> Iterator[str]:
    """The states that hold now; several may."""
    up = {i: node for i, node in run.nodes.items() if run.world.hosts[i].up}
    registrations = run._registrations()
    if len(up) < len(run.nodes):
        yield "broker down"
    if not any(node.is_leader for node in up.values()):
        yield "no controller"
    if any(p.leader < 0 for p in registrations):
        yield "no leader"
    if any(len(p.isr) < len(p.replicas) for p in registrations):
        yield "ISR shrunk"
    if any(p.eligible_leader_replicas or p.last_known_elr for p in registrations):
        yield "ELR in use"
    if any(p.adding_replicas for p in registrations):
        yield "reassignment"
    if run.cluster.lost:
        yield "disk lost something"
    names = list(run.partition_names())
    led = [p for node in up.values() for name in names if (p := node.partition(name)) is not None]
    leading = [p.leading for p in led if p.leading is not None]
    if any(state.pending is not None for state in leading):
        yield "ISR change pending"
    if any(state.log_end_offset > state.high_watermark for state in leading):
        yield "uncommitted records"


def note(met: Met, run: ClusterRun, fault: Fault, under_way: int) -> None:
    """Counts the states that the fault meets; `under_way`: faults that have not ended."""
    states = list(states_of(run))
    if under_way:
        states.append("another fault")
    for state in states or ["calm"]:
        met[fault.kind.value, state] += 1
    met[fault.kind.value, ""] += 1


def table(met: Mapping[tuple[str, str], int]) -> str:
    """Markdown: one row per kind of fault, in percent of its occurrences."""
    kinds = sorted({kind for kind, _ in met})
    lines = [f"| fault | times | {' | '.join(STATES)} |", "|---|" + "---|" * (len(STATES) + 1)]
    for kind in kinds:
        times = met[kind, ""]
        shares = [f"{100 * met.get((kind, state), 0) / times:.0f} %" for state in STATES]
        lines.append(f"| {kind} | {times} | {' | '.join(shares)} |")
    return "\n".join(lines)


def never_met(met: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """Pairs of fault and state that no run has had."""
    kinds = sorted({kind for kind, _ in met})
    return [(k, s) for k in kinds for s in STATES if not met.get((k, s))]
