"""`odradek local up --detach`: the runtime in the background, and the wait until all of it runs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from odradek_cli.errors import CliError

if TYPE_CHECKING:
    from odradek_operator.local.pipelines import PipelineReport
    from odradek_operator.local.runtime import Report

START_DEADLINE_S = 120.0
PIPELINES_DEADLINE_S = 180.0  # more, once the clusters are ready: Spark takes half a minute
# A query runs before its first batch, which may fail at once, for example on an old checkpoint.
FIRST_BATCH_S = 3.0
POLL_S = 0.1


def start_detached(files: list[Path], directory: Path) -> None:
    """Returns when clusters are ready and pipelines run; a pipeline that cannot is an error."""
    flags = [part for file in files for part in ("-f", str(file.resolve()))]
    with open(directory / "runtime.out", "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "odradek_cli", "local", "up", *flags, "--state", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    report = _ready(process, directory)
    for key, cluster in report.clusters.items():
        print(f"{key}\t{cluster.status.bootstrap_servers}")
    _wait_for_pipelines(process, directory)


def _ready(process: subprocess.Popen[bytes], directory: Path) -> Report:
    give_up = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < give_up:
        report = _report(process, directory)
        if report is not None and report.settled:
            return report
        time.sleep(POLL_S)
    raise CliError(
        f"not everything is ready after {START_DEADLINE_S:.0f} s; the runtime (pid {process.pid}) "
        "goes on: `odradek local status` says what is awaited"
    )


def _report(process: subprocess.Popen[bytes], directory: Path) -> Report | None:
    from odradek_operator.local.runtime import read_report

    if process.poll() is not None:
        raise CliError(f"the runtime ended; see {directory / 'runtime.out'}")
    return read_report(directory)


def _wait_for_pipelines(process: subprocess.Popen[bytes], directory: Path) -> None:
    give_up = time.monotonic() + PIPELINES_DEADLINE_S
    at_work_since: float | None = None
    while True:
        report = _report(process, directory)
        pipelines = report.pipelines if report is not None else {}
        goes_on = f"the runtime (pid {process.pid}) and its brokers go on"
        if failed := [line for key, one in pipelines.items() for line in failure(key, one)]:
            raise CliError("\n".join([*failed, goes_on]))
        waiting = [key for key, one in pipelines.items() if not at_work(one)]
        if waiting:
            at_work_since = None
        else:
            at_work_since = at_work_since or time.monotonic()
            tried = all(
                one.idle or (one.status and (one.status.queries or one.status.flows))
                for one in pipelines.values()
            )
            if tried or time.monotonic() - at_work_since > FIRST_BATCH_S:
                return
        if time.monotonic() > give_up:
            raise CliError(
                f"SparkPipeline {', '.join(waiting)}: not running after "
                f"{PIPELINES_DEADLINE_S:.0f} s; `odradek local status` says why; {goes_on}"
            )
        time.sleep(POLL_S)


def at_work(report: PipelineReport) -> bool:
    """It runs, has run to its end, or is not meant to run now."""
    return report.idle or (
        report.status is not None and report.status.state in ("Running", "Completed", "Stopped")
    )


def failure(key: str, report: PipelineReport) -> list[str]:
    """Why a pipeline does not run, in a line; empty while it may yet."""
    from odradek_cli.pipeline_screen import failures
    from odradek_operator.local.pipeline_processes import spark_missing

    if report.waits and report.waits == spark_missing():
        return [f"SparkPipeline {key} cannot run: {report.waits}"]
    if report.status is not None and report.status.state == "Failed":
        return failures({key: report}) or [f"SparkPipeline {key} failed"]
    ended = report.pid is None and not report.waits and not at_work(report)
    if ended or (report.restarts and not at_work(report)):
        return [f"SparkPipeline {key} ended at its start; its output is in driver.out"]
    return []
