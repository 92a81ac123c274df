"""`make abuse`, `make abuse CASE=silent-prefixes`: abuse both engines, print a table.

The results replace older ones in bench/results/abuse.json and in the table of docs/reliability.md
(between its two marks); `--dry-run` only prints. Needs root, to mount small file systems.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from odradek_bench.abuse.scenarios import SCENARIOS, Scenario
from odradek_bench.abuse.victim import Period, VictimProcess
from odradek_bench.abuse.world import VICTIM_PARTITIONS, VICTIM_TOPIC, World
from odradek_bench.engines import ENGINES, ODRADEK

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reliability.md"
RESULTS = ROOT / "bench/results/abuse.json"
BEGIN, END = "<!-- abuse: begin (make abuse writes this) -->", "<!-- abuse: end -->"
QUIET_SECONDS = 4.0
RECOVERY_DEADLINE_S = 60.0
NAMES = {ODRADEK: "Odradek"}


@dataclass
class Outcome:
    """The victim's measurements before, during and after one scenario."""

    scenario: str
    engine: str
    before: Period
    during: Period
    after: Period
    rss_before_mb: int
    rss_max_mb: int
    exits: list[int] = field(default_factory=list)
    recovered_s: float | None = None  # all replicas in sync again, after the abuse ended
    notes: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(prog="odradek_bench.abuse", description=__doc__)
    parser.add_argument("--case", default="", help="only scenarios whose name begins so")
    parser.add_argument("--engine", choices=ENGINES, help="only this engine")
    parser.add_argument("--dry-run", action="store_true", help="publish nothing")
    options = parser.parse_args()
    chosen = [s for s in SCENARIOS if s.name.startswith(tuple(options.case.split(",")))]
    engines = [options.engine] if options.engine else list(ENGINES)
    outcomes = []
    for scenario in chosen:
        for engine in engines:
            print(f"{scenario.name}, {engine}: {scenario.title} …", flush=True)
            with tempfile.TemporaryDirectory(
                prefix="odradek-abuse-", ignore_cleanup_errors=True
            ) as directory:
                outcome = run(scenario, engine, Path(directory))
            print("  " + json.dumps(asdict(outcome)), flush=True)
            outcomes.append(outcome)
    print("\n".join(lines(outcomes)))
    if not options.dry_run:
        publish(outcomes)
    return 0


def run(scenario: Scenario, engine: str, directory: Path) -> Outcome:
    with scenario.servers(engine, directory) as servers:
        world = World(servers)
        world.create_victim_topic()
        victim = VictimProcess(servers.bootstrap, VICTIM_TOPIC, VICTIM_PARTITIONS)
        world.start()
        try:
            time.sleep(QUIET_SECONDS)
            victim.end_period()  # client and JVM warm up
            time.sleep(QUIET_SECONDS)
            before, rss_before = victim.end_period(), world.rss_max
            with scenario.abuse(world):
                time.sleep(scenario.seconds)
                during = victim.end_period()
            recovered = recover(world)
            victim.end_period()
            time.sleep(QUIET_SECONDS)
            after = victim.end_period()
        finally:
            world.stop()
            victim.stop()
        with suppress(AssertionError):
            servers.stop()
    mb = 1_000_000
    return Outcome(
        scenario.name, engine, before, during, after,
        rss_before // mb, world.rss_max // mb, world.exits, recovered, world.notes,
    )  # fmt: skip


def recover(world: World) -> float | None:
    began = time.monotonic()
    while time.monotonic() - began < RECOVERY_DEADLINE_S:
        if not world.under_replicated():
            return round(time.monotonic() - began, 1)
        time.sleep(0.2)
    return None


def lines(outcomes: list[Outcome]) -> list[str]:
    rows = [
        "| abuse | engine | acknowledged | p99, before → during | longest silence "
        "| memory, before → most | ended by itself | in sync again |",
        "|---|---|---|---|---|---|---|---|",
    ]
    titles = {scenario.name: scenario.title for scenario in SCENARIOS}
    for outcome in outcomes:
        during, before = outcome.during, outcome.before
        expected = during.seconds * before.acked / before.seconds if before.acked else 1.0
        notes = f" ({'; '.join(outcome.notes)})" if outcome.notes else ""
        ended = ", ".join(f"exit code {code}" for code in sorted(set(outcome.exits))) or "no"
        recovered = "no" if outcome.recovered_s is None else f"after {outcome.recovered_s:.1f} s"
        rows.append(
            f"| {titles[outcome.scenario]}{notes} | {NAMES.get(outcome.engine, 'Apache Kafka')} "
            f"| {min(1.0, during.acked / expected):.0%} "
            f"| {_ms(before.p99_ms)} → {_ms(during.p99_ms)} | {_ms(during.longest_silence_ms)} "
            f"| {outcome.rss_before_mb} → {outcome.rss_max_mb} MB | {ended} | {recovered} |"
        )
    return rows


def _ms(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"


def publish(outcomes: list[Outcome]) -> None:
    """These outcomes, and the saved ones of the other scenarios."""
    found = {(outcome.scenario, outcome.engine): outcome for outcome in outcomes}
    for older in map(_loaded, json.loads(RESULTS.read_text()) if RESULTS.exists() else []):
        found.setdefault((older.scenario, older.engine), older)
    order = [(scenario.name, engine) for scenario in SCENARIOS for engine in ENGINES]
    known = [found[key] for key in order if key in found]
    RESULTS.write_text(json.dumps([asdict(outcome) for outcome in known], indent=1) + "\n")
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    table = "\n".join(lines(known))
    PAGE.write_text(f"{head}{BEGIN}\n{table}\n{END}{tail}")


def _loaded(entry: dict[str, Any]) -> Outcome:
    periods = {name: Period(**entry[name]) for name in ("before", "during", "after")}
    return Outcome(**{**entry, **periods})


if __name__ == "__main__":
    sys.exit(main())
