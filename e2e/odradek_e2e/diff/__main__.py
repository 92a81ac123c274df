"""`python -m odradek_e2e.diff`: runs, prints, and fails on a difference that is not expected."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from odradek_e2e.diff.engines import both_engines
from odradek_e2e.diff.run import Met, Run, Tally

EXAMPLE_CHARS = 600


def main() -> int:
    parser = argparse.ArgumentParser(prog="protocol-diff", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=3000)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="odradek-diff-") as directory,
        both_engines(Path(directory)) as (ours, apache),
    ):
        run = Run(ours, apache, asked.seed)
        run.run(asked.requests, lambda done: print(f"{done} requests", file=sys.stderr))
    return report(run.tally, asked.seed)


def report(tally: Tally, seed: int) -> int:
    apis = {key for key, _ in tally.pairs}
    print(
        f"seed {seed}: {tally.requests} requests ({tally.malformed} malformed) of {len(apis)} APIs "
        f"in {len(tally.pairs)} versions to both engines"
    )
    unexpected: dict[tuple[str, str, str], list[Met]] = defaultdict(list)
    expected: dict[str, int] = defaultdict(int)
    for met in tally.met:
        if met.reason is None:
            unexpected[met.api, met.damage, met.difference.field].append(met)
        else:
            expected[met.reason] += 1
    for (api, damage, field), all_met in sorted(unexpected.items()):
        versions = sorted({met.version for met in all_met})
        print(f"\n{api} v{','.join(map(str, versions))} {damage} {field or 'outcome'}: "
              f"{len(all_met)} times, for example")  # fmt: skip
        for line in _examples(all_met):
            print(line)
    if expected:
        print("\nexpected:")
        for reason, count in sorted(expected.items()):
            print(f"  {count:5d}  {reason}")
    print(f"\n{sum(map(len, unexpected.values()))} unexpected differences in {len(unexpected)} "
          f"groups; {sum(expected.values())} expected")  # fmt: skip
    return 1 if unexpected else 0


def _examples(all_met: list[Met], count: int = 2) -> list[str]:
    """One example of each pair of values, at most `count` of them."""
    lines: list[str] = []
    seen: set[str] = set()
    for met in all_met:
        values = repr(met.difference[1:])
        if values in seen or len(seen) == count:
            continue
        seen.add(values)
        lines += [
            f"    request  v{met.version} {met.request[:EXAMPLE_CHARS]}",
            f"    apache   {str(met.difference.apache)[:EXAMPLE_CHARS]}",
            f"    embedded {str(met.difference.embedded)[:EXAMPLE_CHARS]}",
        ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
