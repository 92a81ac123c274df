"""Apache Kafka in a pod of the operator: formats its disk, runs it, and answers the probes.

    python3 -m odradek_apache.main --config /etc/odradek/main-zone-a-0.properties --admin-port 9404

The file is Kafka's own, with two lines that Kafka does not know: `odradek.cluster.id` and
`odradek.storage.format`, which say how the disk of this node is formatted at its first start.

    /healthz   200 as long as the JVM runs
    /readyz    200 once the broker has logged its start and answers clients
    /metrics   Kafka's metrics for Prometheus, and whether it is up and ready

The metrics come from the JMX exporter, an agent in Kafka's JVM that only this process reaches: so
the pod has one port, which answers before Kafka does. Only the standard library is used.
"""

import argparse
import contextlib
import http.client
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOME = Path("/opt/odradek")
JARS = HOME / "jars"
LOGGING = HOME / "odradek_apache" / "log4j2.json"
METRICS_RULES = HOME / "odradek_apache" / "apache-metrics.yaml"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
METRICS_AGENT = "jmx_prometheus_javaagent-*.jar"
METRICS_PORTS = range(9405, 9500)  # inside the pod; the first port that no listener has
METRICS_SECONDS = 30.0  # on a busy machine the first answer takes seconds
CLUSTER_ID, FORMAT = "odradek.cluster.id", "odradek.storage.format"
HEAP = "KAFKA_HEAP_OPTS"
HEAP_DEFAULT = "-Xms256m -Xmx512m"
STARTED = re.compile(rb"Kafka Server started")  # logged when the broker is unfenced
ANSWER_SECONDS = 2.0


def read_properties(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs if not name.startswith("#")}


def java(*words: str) -> list[str]:
    """`words`: further flags, the class and its arguments."""
    heap = shlex.split(os.environ.get(HEAP) or HEAP_DEFAULT)
    quiet = ["-XX:-UsePerfData", f"-Dlog4j2.configurationFile={LOGGING}"]
    return ["java", *heap, *quiet, "-cp", f"{JARS}/*", *words]


def allowed_urls(settings: dict[str, str]) -> list[str]:
    """Kafka asks only those identity providers that a property of its JVM lists."""
    urls = sorted({url for name, url in settings.items() if name.endswith(JWKS_URL)})
    return [f"-D{ALLOWED_URLS}={','.join(urls)}"] if urls else []


class Kafka:
    """The JVM that formats the disk, then the one that serves; their output is passed on."""

    def __init__(self, config: Path, admin_port: int) -> None:
        self._config = config
        self._settings = read_properties(config.read_text())
        taken = [*listener_ports(self._settings), admin_port]
        self._port = taken[0]
        self._metrics_port = next(p for p in METRICS_PORTS if p not in taken and is_free(p))
        self._process: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()
        self._stopping = False

    def run(self) -> int:
        """Runs until it ends; its exit code."""
        code = self._run("kafka.tools.StorageTool", "format", "--ignore-formatted",
                         "-t", self._settings[CLUSTER_ID], "-c", str(self._config),
                         *self._settings[FORMAT].split())  # fmt: skip
        if code == 0 and not self._stopping:
            flags = [*self._agent(), *allowed_urls(self._settings)]
            code = self._run(*flags, "kafka.Kafka", str(self._config))
        return 0 if code == 128 + signal.SIGTERM else code  # a JVM exits with 143 after SIGTERM

    def _agent(self) -> list[str]:
        at = f"127.0.0.1:{self._metrics_port}:{METRICS_RULES}"
        return [f"-javaagent:{found}={at}" for found in sorted(JARS.glob(METRICS_AGENT))[-1:]]

    def _run(self, *words: str) -> int:
        with subprocess.Popen(
            java(*words), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as self._process:  # fmt: skip
            self._read(self._process)
        return self._process.returncode

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            if STARTED.search(line):
                self._started.set()

    @property
    def runs(self) -> bool:
        """Also while the disk is formatted, which may take long."""
        return self._process is None or self._process.poll() is None

    @property
    def ready(self) -> bool:
        return self._started.is_set() and self.runs and answers(self._port)

    def metrics(self) -> str | None:
        """The agent's metrics and our own; only our own while Kafka does not run.

        None if the agent runs and does not answer: half of the metrics would be misleading.
        """
        said = scrape(self._metrics_port)
        if said is None:
            return None
        for name, true in (("odradek_apache_up", self.runs), ("odradek_ready", self.ready)):
            said += f"# TYPE {name} gauge\n{name} {int(true)}\n"
        return said

    def terminate(self, *_: object) -> None:
        """Controlled shutdown: the leaders move to other brokers first."""
        self._stopping = True
        self._started.clear()
        if self._process is not None:
            self._process.terminate()


def answers(port: int) -> bool:
    """A whole request (ApiVersions v0), not only a TCP connect."""
    request = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(8, socket.MSG_WAITALL)) == 8
    except OSError:
        return False


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def scrape(port: int) -> str | None:
    """The agent's answer; empty if there is no agent yet, None if it fails."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=METRICS_SECONDS)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        try:
            connection.connect()
        except ConnectionRefusedError:
            return ""
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        if answer.status == 200:
            return answer.read().decode()
    return None


def serve(kafka: Kafka, port: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path:
                case "/healthz":
                    status, text = (200, "runs\n") if kafka.runs else (503, "ended\n")
                case "/readyz":
                    status, text = (200, "ready\n") if kafka.ready else (503, "not ready\n")
                case "/metrics":
                    said = kafka.metrics()
                    status, text = (503, "no answer in time\n") if said is None else (200, said)
                case _:
                    status, text = 404, "not found\n"
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes are not logged."""

    server = ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def listener_ports(settings: dict[str, str]) -> list[int]:
    """The first listener, which is the one for clients inside Kubernetes."""
    return [int(one.rpartition(":")[2]) for one in settings["listeners"].split(",")]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="odradek-apache", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--admin-port", type=int, required=True)
    given = parser.parse_args(words)
    kafka = Kafka(given.config, given.admin_port)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, kafka.terminate)
    serve(kafka, given.admin_port)
    return kafka.run()


if __name__ == "__main__":
    sys.exit(main())
