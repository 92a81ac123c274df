"""The driver: `python -m odradek_spark.main job.json`, started directly or by spark-submit."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from odradek_api.pipeline.job import SpecError
from odradek_spark.config import load


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="odradek_spark", description="Runs a pipeline on Spark")
    parser.add_argument("job", type=Path, help="job file, written by the operator or the CLI")
    given = parser.parse_args(arguments)
    try:
        job = load(given.job)
    except SpecError as error:
        print(f"odradek_spark: {error}", file=sys.stderr)
        return 2
    from odradek_spark.jobs.run import JobRun  # pyspark takes a second to import

    run = JobRun(job)
    code = run.run()
    if run.status.message:
        where = f"{run.status.field}: " if run.status.field else ""
        print(f"odradek_spark: {job.key}: {where}{run.status.message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
