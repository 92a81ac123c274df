"""The driver: `python -m odradek_spark.main job.json`, started directly or by spark-submit.

With --analyse, --preview ROWS or --test it only looks at the job, and prints what it saw as JSON
(jobs/look.py).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from odradek_api.pipeline.job import SpecError
from odradek_spark.config import load


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="odradek_spark", description="Runs a pipeline on Spark")
    parser.add_argument("job", type=Path, help="job file, written by the operator or the CLI")
    parser.add_argument("--analyse", action="store_true", help="let Spark check it, run nothing")
    parser.add_argument("--preview", type=int, metavar="ROWS", help="rows of each source and step")
    parser.add_argument("--test", action="store_true", help="run the tests of its steps")
    given = parser.parse_args(arguments)
    try:
        job = load(given.job)
    except SpecError as error:
        print(f"odradek_spark: {error}", file=sys.stderr)
        return 2
    if given.analyse or given.preview or given.test:
        from odradek_spark.jobs.entry import look_at

        look = look_at(job, given.preview, test=given.test)
        print(msgspec.json.encode(look).decode())
        return 2 if look.message else 0
    from odradek_spark.jobs.entry import run_of  # pyspark takes a second to import

    run = run_of(job)
    code = run.run()
    if run.status.message:
        where = f"{run.status.field}: " if run.status.field else ""
        print(f"odradek_spark: {job.key}: {where}{run.status.message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
