"""`python -m odradek_e2e.ecosystem --case sarama,kcat`: exit code 1 if a check fails."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from odradek_e2e.ecosystem.build import CannotBuildError
from odradek_e2e.ecosystem.case import Case, Place, complete
from odradek_e2e.ecosystem.contract import Check
from odradek_e2e.ecosystem.registry import CASES
from odradek_e2e.ecosystem.table import Results, write
from odradek_testkit.engines import RunningApacheKafka, RunningBroker

ENGINES: dict[str, type[RunningApacheKafka] | type[RunningBroker]] = {
    "apache": RunningApacheKafka,
    "embedded": RunningBroker,
}
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}  # tests should not wait for more members


def main() -> int:
    parser = argparse.ArgumentParser(prog="ecosystem", description=__doc__)
    parser.add_argument("--case", default="", help=f"of {', '.join(CASES)}; all if empty")
    parser.add_argument("--engine", default="both", choices=[*ENGINES, "both"])
    parser.add_argument("--keep", default="", help="a directory for the logs, which stay there")
    asked = parser.parse_args()
    names = [name for name in asked.case.split(",") if name] or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        sys.exit(f"no case {unknown[0]}; there are {', '.join(CASES)}")
    found: Results = {name: {} for name in names}
    with tempfile.TemporaryDirectory(prefix="odradek-ecosystem-") as temporary:
        top = Path(asked.keep or temporary)
        for engine in ENGINES if asked.engine == "both" else [asked.engine]:
            run_engine(engine, [CASES[name] for name in names], top / engine, found)
    write(found)
    failed = [c for results in found.values() for cs in results.values() for c in cs
              if c.state == "failed"]  # fmt: skip
    return 1 if failed else 0


def run_engine(engine: str, cases: list[Case], top: Path, found: Results) -> None:
    """One server for all cases of an engine."""
    with ENGINES[engine](SETTINGS, directory=top / "server") as server:
        for case in cases:
            directory = top / case.name
            directory.mkdir(parents=True, exist_ok=True)
            prefix = f"{case.name}-{time.time_ns() % 100_000}"
            place = Place(server, directory, prefix)
            checks = found[case.name][engine] = run_case(case, place)
            for check in checks:
                why = f": {check.why}" if check.why else ""
                print(f"{engine} {case.name} {check.state} {check.name}{why}", flush=True)


def run_case(case: Case, place: Place) -> list[Check]:
    try:
        return complete(case, case.run(place))
    except CannotBuildError as error:
        return [Check("build", "failed", str(error))]
    except Exception as error:  # a broken case must not hide the results of the others
        return [Check("run", "failed", f"{type(error).__name__}: {error}")]


if __name__ == "__main__":
    sys.exit(main())
