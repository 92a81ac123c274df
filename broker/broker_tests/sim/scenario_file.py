"""A failing seed as a file: the faults that are left after shrinking, to be kept as a test.

    {"kind": "cluster", "seed": 348, "failure": "…", "faults": [{"kind": "crash", "at_ms": 120,
     "duration_ms": 400, "nodes": [2], "chases_leader": true}]}

`make sim` writes one for every failing seed into build/sim. Once the bug is fixed, the file goes
into sim/kept/, whose runs test_cluster_scenarios.py expects to pass.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from broker_tests.sim.faults import Fault, Kind

KEPT = Path(__file__).with_name("kept")


def save(path: Path, kind: str, seed: int, failure: str, faults: Sequence[Fault]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = [{**asdict(fault), "kind": fault.kind.value} for fault in faults]
    content = {"kind": kind, "seed": seed, "failure": failure, "faults": shown}
    path.write_text(json.dumps(content, indent=1) + "\n")


def load(path: Path) -> tuple[str, int, tuple[Fault, ...]]:
    """The kind of simulation, its seed, its faults."""
    content: dict[str, Any] = json.loads(path.read_text())
    faults = (
        Fault(**{**one, "kind": Kind(one["kind"]), "nodes": tuple(one["nodes"])})
        for one in content["faults"]
    )
    return content["kind"], content["seed"], tuple(faults)
