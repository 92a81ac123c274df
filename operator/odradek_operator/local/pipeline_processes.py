"""A pipeline's driver as a process on this machine: started, followed, started again, ended.

    pipeline = LocalPipeline(directory, restart_policy)
    pipeline.start(job)                 # writes job.json, runs `python -m odradek_spark.main`
    pipeline.look(time.monotonic())     # restarts it as the policy says; cheap, call it often

The directory has job.json, status.json (what the driver says), driver.out (what it printed), and,
unless the spec says otherwise, the checkpoint. A driver ends when whoever started it dies.
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
STOP_S = 30.0  # for the batch at work, after SIGTERM
WRONG_SPEC = 2  # exit code: trying again would not help
OUTPUT_BYTES_MAX = 16 << 20


def spark_missing() -> str:
    """Why no pipeline can run here; empty if they can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: `make spark` installs it (430 MB)"
    return ""


class LocalPipeline:
    def __init__(self, directory: Path, policy: RestartPolicy) -> None:
        self.directory = directory
        self.policy = policy
        self.restarts = 0
        self.ended: int | None = None  # the last exit code, once it is not started again
        self._process: subprocess.Popen[bytes] | None = None
        self._again_at: float | None = None
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
        self._again_at = None
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
                start_new_session=True,  # Ctrl-C is ours to hear; we end it in order
            )

    def look(self, now_s: float) -> JobStatus | None:
        """What the driver says; one that failed is started again when its time has come."""
        status = self.status()
        if self._process is not None and (code := self._process.poll()) is not None:
            self._process = None
            self._over(code, status, now_s)
        if self._again_at is not None and now_s >= self._again_at:
            self.restarts += 1
            self._spawn()
        return status

    def _over(self, code: int, status: JobStatus | None, now_s: float) -> None:
        worked = status is not None and any(q.batch >= 0 for q in status.queries.values())
        self._failures = 1 if worked else self._failures + 1
        retries = self.policy.retries
        tired = retries is not None and self._failures > retries
        again = {
            "Never": False,
            "OnFailure": code not in (0, WRONG_SPEC) and not tired,
            "Always": code != WRONG_SPEC and not (code != 0 and tired),
        }[self.policy.type]
        if again:
            self._again_at = now_s + self.policy.interval_seconds
        else:
            self.ended = code

    def status(self) -> JobStatus | None:
        try:
            text = (self.directory / "status.json").read_bytes()
            return msgspec.json.decode(text, type=JobStatus)
        except (OSError, msgspec.DecodeError):
            return None

    def stop(self, wait_s: float = STOP_S) -> None:
        """The batch at work is given up; it is done again next time, from the checkpoint."""
        self._again_at = None
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
        """The end of what it printed, without the stack traces."""
        try:
            text = self.output.read_text(errors="replace")
        except OSError:
            return ""
        said = [line for line in text.splitlines() if not line.startswith(("\tat ", "    at "))]
        return "\n".join(said[-lines:])
