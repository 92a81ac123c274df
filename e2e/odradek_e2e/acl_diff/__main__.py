"""`python -m odradek_e2e.acl_diff`: fails on a difference that is not expected."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from odradek_e2e.acl_diff.run import AclRun
from odradek_e2e.acl_diff.users import settings
from odradek_e2e.diff.__main__ import report
from odradek_e2e.diff.engines import both_engines


def main() -> int:
    parser = argparse.ArgumentParser(prog="acl-diff", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=5000)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="odradek-acl-diff-") as directory,
        both_engines(Path(directory), settings()) as (ours, apache),
    ):
        run = AclRun(ours, apache, asked.seed)
        run.prepare()
        run.run(asked.requests, lambda done: print(f"{done} requests", file=sys.stderr))
    return report(run.tally, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
