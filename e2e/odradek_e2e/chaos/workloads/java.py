"""Apache Kafka's own VerifiableProducer: the Java client, idempotent, with its default retries.

It prints a JSON line per acknowledgement; values are consecutive numbers, keys are none, so its
partitioner sticks to a partition per batch. Options: topic, per_second.
"""

from __future__ import annotations

import json
import subprocess
import threading
from typing import IO

from odradek_e2e.chaos.history import now
from odradek_e2e.chaos.workloads.job import Job
from odradek_testkit.engines import java_command

TOOL = "org.apache.kafka.tools.VerifiableProducer"
END_S = 90.0


def run(job: Job) -> None:
    command = java_command(
        TOOL, "--bootstrap-server", job.bootstrap, "--topic", job.options["topic"],
        "--throughput", str(job.options["per_second"]), "--acks", "-1", "--max-messages", "-1",
    )  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    reader = threading.Thread(target=_record, args=(job, process.stdout))
    reader.start()
    job.over.wait()
    process.terminate()  # it closes the producer, which waits for what is under way
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
    reader.join()


def _record(job: Job, lines: IO[str]) -> None:
    recorder = job.recorder("java", "writer")
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if said.get("name") == "producer_send_success":
            recorder.note("acked", v=said["value"], p=said["partition"], o=said["offset"], t=now())
        elif said.get("name") == "producer_send_error":
            recorder.note("unknown", v=said["value"], why=said.get("exception", ""))
