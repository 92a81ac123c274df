"""`odradek pipeline plan --spark` and `preview`: Spark looks at a job in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek_cli.errors import CliError
from odradek_cli.output import print_table

if TYPE_CHECKING:
    from odradek_api.pipeline.job import Job

OUTPUT_MAX = 2000  # characters of Spark's output in an error


def look(job: Job, checkpoint: Path, *arguments: str) -> dict[str, Any]:
    """The driver's result (odradek_spark/jobs/look.py); CliError with the field that is wrong."""
    import msgspec

    from odradek_operator.local.pipeline_processes import LOCAL_MASTER, spark_missing

    if missing := spark_missing():
        raise CliError(missing)
    whole = msgspec.structs.replace(job, checkpoint=str(checkpoint), master=LOCAL_MASTER)
    with tempfile.TemporaryDirectory(prefix="odradek-look-") as directory:
        path = Path(directory) / "job.json"
        path.write_bytes(msgspec.json.encode(whole))
        command = [sys.executable, "-m", "odradek_spark.main", str(path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        seen: dict[str, Any] = msgspec.json.decode(done.stdout.splitlines()[-1])
    except (IndexError, msgspec.DecodeError):
        said = f"{done.stdout}{done.stderr}"[-OUTPUT_MAX:]
        raise CliError(f"SparkPipeline {job.key}: Spark did not answer:\n{said}") from None
    if seen.get("message"):
        field = f"{seen['field']}: " if seen.get("field") else ""
        raise CliError(f"SparkPipeline {job.key}: {field}{seen['message']}")
    return seen


def columns_of(seen: dict[str, Any]) -> list[str]:
    """A line per view: "visits: page string, at timestamp"."""
    return [
        f"{view['name']}: " + ", ".join(f"{name} {kind}" for name, kind in view["columns"].items())
        for view in seen.get("views", ())
    ]


def flows_of(seen: dict[str, Any]) -> list[str]:
    """A line per flow of a declarative pipeline: "counts: reads visits"."""
    return [
        f"{flow['name']}: reads {', '.join(flow.get('inputs', ())) or 'no table of the project'}"
        for flow in seen.get("flows", ())
    ]


def show_rows(seen: dict[str, Any]) -> None:
    for view in seen.get("views", ()):
        print(f"\n{view['name']}: {len(view['rows'])} rows")
        print_table(list(view["columns"]), view["rows"])


def show_tests(seen: dict[str, Any]) -> None:
    for key, tests in seen.items():
        for one in tests:
            wrong = one["missing"] or one["unexpected"]
            print(f"{'FAILED' if wrong else 'passed'} {key}: {one['name']}")
            for word in ("missing", "unexpected"):
                for row in one[word]:
                    print(f"  {word} {row}")
