"""A pipeline's driver as a process on this machine: started, supervised, restarted, stopped.

    pipeline = LocalPipeline(directory, restart_policy)
    pipeline.start(job)                 # writes job.json, runs `python -m odradek_spark.main`
    pipeline.supervise(time.monotonic())    # restarts it by its policy; cheap, call it often
    pipeline.status()                       # what the driver reported last

The directory contains job.json, status.json (written by the driver), driver.out (its output) and,
unless the spec names another one, the checkpoint. A driver ends when its parent process dies.
"""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from odradek_api.pipeline.job import Job
from odradek_api.pipeline.spec import RestartPolicy
from odradek_api.pipeline.status import JobStatus
from odradek_operator.local.ledger import write_json

LOCAL_MASTER = "local[*,8]"  # a failed task is tried again, eight times
STOP_S = 30.0  # for the running batch, after SIGTERM
WRONG_SPEC = 2  # exit code of a driver that refuses its job: a restart would not help
OUTPUT_BYTES_MAX = 16 << 20


def spark_missing() -> str:
    """Why no pipeline can run on this machine; empty if they can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'odradek[spark]' (520 MB), or `make spark`"
    return ""


class LocalPipeline:
    def __init__(self, directory: Path, policy: RestartPolicy) -> None:
        self.directory = directory
        self.policy = policy
        self.restarts = 0
        self.ended: int | None = None  # the exit code, if it is not started again
        self._process: subprocess.Popen[bytes] | None = None
        self._restart_at: float | None = None
        self._failures = 0  # in a row, without a batch in between

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def output(self) -> Path:
        return self.directory / "driver.out"

    def start(self, job: Job) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_json(
            self.directory / "job.json",
            msgspec.structs.replace(
                job,
                checkpoint=job.checkpoint or str(self.directory / "checkpoint"),
                status_file=str(self.directory / "status.json"),
                master=job.master or LOCAL_MASTER,
                end_with_parent=True,
            ),
        )
        self.ended, self._failures = None, 0
        self._spawn()

    def _spawn(self) -> None:
        (self.directory / "status.json").unlink(missing_ok=True)
        self._restart_at = None
        with contextlib.suppress(OSError):
            if self.output.stat().st_size > OUTPUT_BYTES_MAX:
                self.output.replace(self.output.with_suffix(".out.1"))
        command = [sys.executable, "-m", "odradek_spark.main", str(self.directory / "job.json")]
        with open(self.output, "ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the runtime, which stops the driver
            )

    def supervise(self, now_s: float) -> None:
        """Notices that the driver ended, and starts it again when its policy says so."""
        if self._process is not None and (code := self._process.poll()) is not None:
            self._process = None
            self._ended(code, self.status(), now_s)
        if self._restart_at is not None and now_s >= self._restart_at:
            self.restarts += 1
            self._spawn()

    def _ended(self, code: int, status: JobStatus | None, now_s: float) -> None:
        worked = status is not None and any(q.batch >= 0 for q in status.queries.values())
        self._failures = 1 if worked else self._failures + 1
        retries = self.policy.retries
        exhausted = retries is not None and self._failures > retries
        again = {
            "Never": False,
            "OnFailure": code not in (0, WRONG_SPEC) and not exhausted,
            "Always": code != WRONG_SPEC and not (code != 0 and exhausted),
        }[self.policy.type]
        if again:
            self._restart_at = now_s + self.policy.interval_seconds
        else:
            self.ended = code

    def status(self) -> JobStatus | None:
        try:
            text = (self.directory / "status.json").read_bytes()
            return msgspec.json.decode(text, type=JobStatus)
        except (OSError, msgspec.DecodeError):
            return None

    def stop(self, wait_s: float = STOP_S) -> None:
        """Aborts the running batch; the next start repeats it from the checkpoint."""
        self._restart_at = None
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def last_words(self, lines: int = 15) -> str:
        """The end of its output, without stack traces."""
        try:
            text = self.output.read_text(errors="replace")
        except OSError:
            return ""
        shown = [line for line in text.splitlines() if not line.startswith(("\tat ", "    at "))]
        return "\n".join(shown[-lines:])
