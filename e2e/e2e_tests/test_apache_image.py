"""The program of the image of engine `apache`, with real Apache Kafka, without the image."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from odradek_images import build
from odradek_images.table import APACHE
from odradek_operator.kafka.apache import apache_settings
from odradek_operator.kubernetes.properties import properties_text
from odradek_testkit.engines import JVM_FLAGS, answers_api_versions, kafka_jars
from odradek_testkit.ports import free_port

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

DEADLINE_S = 120.0


class Pod:
    """The image's files, and the program as the pod's container runs it."""

    def __init__(self, directory: Path) -> None:
        self.admin_port, self.port = free_port(), free_port()
        home = directory / "opt"
        for name, path in build.sources(APACHE).items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(path.read_text().replace("/opt/odradek", str(home)))
        (home / "jars").symlink_to(kafka_jars())
        settings = {
            "node.id": "0",
            "log.dirs": str(directory / "data"),
            **apache_settings(
                0, f"PLAINTEXT://127.0.0.1:{self.port}", f"PLAINTEXT://127.0.0.1:{self.port}",
                f"0.0.0.0:{self.admin_port}", (0,), {0: {"CONTROLLER": f"127.0.0.1:{free_port()}"}},
                "b2RyYWRlay10ZXN0cy0xMQ",
            ),
        }  # fmt: skip
        config = directory / "main-a-0.properties"
        config.write_text(properties_text(settings))
        self.output = directory / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *APACHE.entrypoint[1:], "--config", str(config),
                 "--admin-port", str(self.admin_port)],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(home),
                     "KAFKA_HEAP_OPTS": " ".join(JVM_FLAGS)},
                stdout=output, stderr=output,
            )  # fmt: skip

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(f"http://127.0.0.1:{self.admin_port}{path}", timeout=30.0)

    def until(self, path: str, status: int) -> str:
        give_up = time.monotonic() + DEADLINE_S
        while True:
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < give_up, self.output.read_text()
            try:
                if (answer := self.get(path)).status_code == status:
                    return answer.text
            except httpx2.TransportError:
                pass
            time.sleep(0.1)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    made = Pod(tmp_path)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.send_signal(signal.SIGTERM)
            made.process.wait(60)


def test_it_formats_runs_answers_and_ends(pod: Pod) -> None:
    """One port for the probes and for Prometheus, before Kafka runs and while it does."""
    assert "odradek_ready 0" in pod.until("/metrics", 200)
    assert pod.until("/readyz", 200) == "ready\n"
    assert answers_api_versions(f"127.0.0.1:{pod.port}")
    said = pod.get("/metrics").text
    for line in ("odradek_apache_up 1", "odradek_ready 1",
                 "kafka_server_kafkaserver_brokerstate 3.0",
                 "kafka_controller_kafkacontroller_activecontrollercount 1.0"):  # fmt: skip
        assert f"\n{line}\n" in said, line
    assert 'jvm_memory_used_bytes{area="heap"}' in said
    assert pod.get("/healthz").status_code == 200
    assert pod.get("/").status_code == 404
    pod.process.send_signal(signal.SIGTERM)
    assert pod.process.wait(60) == 0, pod.output.read_text()
    meta = (pod.output.parent / "data" / "meta.properties").read_text()
    assert "cluster.id=b2RyYWRlay10ZXN0cy0xMQ" in meta


def test_the_rules_are_among_the_files_of_the_image() -> None:
    found = build.sources(APACHE)
    assert "odradek_apache/apache-metrics.yaml" in found
    assert "odradek_apache/log4j2.json" in found
