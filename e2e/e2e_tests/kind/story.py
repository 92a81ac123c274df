"""A namespace on the kind cluster, with what a story does there and waits for.

    story.cluster(brokers=3)
    story.topic("orders", partitions=6, replicationFactor=3)
    story.settle()                              # Ready, nothing left to do
    with story.load("orders") as load:          # acks=all, from outside, over node ports
        story.annotate("odradek.dev/restart", "1")
        story.settle()
    story.judge(load)                           # nothing lost, nothing twice, no error seen

Kubernetes is asked through kubectl, as a person would.
"""

from __future__ import annotations

import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, ClusterMetadata

from odradek_e2e.kind.places import kubeconfig
from odradek_testkit.kubernetes.programs import program
from odradek_testkit.load import Load

PATIENCE_S = 420.0  # two cores carry four nodes, the brokers and the clients
POLL_S = 1.0
CLUSTER = "main"
API_VERSION = "odradek.dev/v1alpha1"


class KubectlError(Exception):
    pass


def kubectl(*words: str, stdin: str | None = None, timeout_s: float = 300.0) -> str:
    command = [str(program("kubectl")), f"--kubeconfig={kubeconfig()}", *words]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    if done.returncode != 0:
        raise KubectlError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Story:
    def __init__(self, namespace: str, directory: Path) -> None:
        self.namespace = namespace
        self.directory = directory  # of the load: what the producer said; its history if it is bad

    # -- kubectl -----------------------------------------------------------------------------------

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return kubectl(f"--namespace={self.namespace}", *words, stdin=stdin)

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str = CLUSTER) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def find(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        words = ["get", kind, "-o", "json", *([f"--selector={selector}"] if selector else [])]
        found: list[dict[str, Any]] = json.loads(self.kubectl(*words))["items"]
        return found

    def patch(self, kind: str, name: str, change: dict[str, Any]) -> None:
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change))

    def events(self, reason: str = "") -> list[str]:
        found = self.find("events")
        return [one["message"] for one in found if reason in ("", one["reason"])]

    # -- our kinds ---------------------------------------------------------------------------------

    def cluster(self, **spec: Any) -> None:
        self.apply(
            {
                "apiVersion": API_VERSION,
                "kind": "KafkaCluster",
                "metadata": {"name": CLUSTER},
                "spec": {
                    "brokers": 3,
                    "storage": {"size": "1Gi", "deletionPolicy": "Delete"},
                    "listeners": {"external": {"type": "NodePort"}},
                    **spec,
                },
            }
        )

    def topic(self, name: str, **spec: Any) -> None:
        self.apply(
            {
                "apiVersion": API_VERSION,
                "kind": "Topic",
                "metadata": {"name": name},
                "spec": {"cluster": {"name": CLUSTER}, **spec},
            }
        )

    def change(self, **spec: Any) -> None:
        self.patch("kafkacluster", CLUSTER, {"spec": spec})

    def annotate(self, name: str, value: str) -> None:
        self.kubectl("annotate", "--overwrite", "kafkacluster", CLUSTER, f"{name}={value}")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("kafkacluster").get("status") or {}
        return found

    # -- waiting -----------------------------------------------------------------------------------

    def wait_until(
        self, condition: Callable[[], bool], what: str = "", deadline_s: float = PATIENCE_S
    ) -> float:
        """Asks again every second; the seconds that it took. Load calls it too."""
        began = time.monotonic()
        deadline_s = max(deadline_s, PATIENCE_S)
        while not condition():
            if time.monotonic() - began > deadline_s:
                pytest.fail(f"{what or 'the condition'}: not within {deadline_s:.0f} s")
            time.sleep(POLL_S)
        return time.monotonic() - began

    def settle(self) -> dict[str, Any]:
        """Until nothing is left to do: the cluster, and every Topic. The cluster's status."""
        last: dict[str, Any] = {}

        def done() -> bool:
            nonlocal last
            last = self.get("kafkacluster")
            return settled(last) and all(settled(one) for one in self.find("topics"))

        try:
            self.wait_until(done, "the cluster is settled")
        except pytest.fail.Exception:
            pytest.fail(f"not settled: {json.dumps(last.get('status'), indent=1)}")
        found: dict[str, Any] = last["status"]
        return found

    # -- brokers -----------------------------------------------------------------------------------

    def pods(self) -> dict[str, dict[str, Any]]:
        found = self.find("pods", f"odradek.dev/cluster={CLUSTER}")
        return {one["metadata"]["name"]: one for one in found}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    @property
    def bootstrap(self) -> str:
        """For clients outside: the node and node port of every broker."""
        services = {one["metadata"]["name"]: one for one in self.find("services")}
        found = []
        for name, pod in self.pods().items():
            service = services.get(f"{name}-external")
            if service and pod["status"].get("hostIP"):
                port = service["spec"]["ports"][0]["nodePort"]
                found.append(f"{pod['status']['hostIP']}:{port}")
        return ",".join(found)

    def partitions(self, topic: str) -> list[dict[str, list[int]]]:
        """As a client outside is told: replicas and in-sync replicas of each."""
        found = self._metadata().topics[topic].partitions.values()
        return [{"replicas": list(p.replicas), "isr": list(p.isrs)} for p in found]

    def topics(self) -> set[str]:
        return set(self._metadata().topics)

    def _metadata(self) -> ClusterMetadata:
        return AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=30)

    # -- clients -----------------------------------------------------------------------------------

    @contextmanager
    def load(self, topic: str, partitions: int = 6, **settings: Any) -> Iterator[Load]:
        """`settings` of the producer. What it says about its epochs is in producer.log."""
        world: Any = self
        noted = logging.FileHandler(self.directory / "producer.log", delay=True)
        noted.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger = logging.Logger(self.namespace, logging.DEBUG)
        logger.addHandler(noted)
        told = {"debug": "eos", "log_level": 7, "logger": logger, **settings}
        try:
            with Load(world, topic, partitions=partitions, per_second=100, settings=told) as load:
                yield load
                load.wait_for_acks(50)
        finally:
            noted.close()

    def judge(self, load: Load) -> str:
        checked = load.check()
        assert [write.error for write in load.history.errors()] == []
        took = sorted(w.done_at_s - w.sent_at_s for w in load.history.acked())
        said = f"{checked} acknowledged, 0 lost, 0 twice, 0 errors, "
        return said + f"p50 {took[len(took) // 2] * 1e3:.0f} ms, max {took[-1] * 1e3:.0f} ms"

    @contextmanager
    def watched(self) -> Iterator[list[dict[str, Any]]]:
        """Every state of `status.rolling` meanwhile, with the controller of that moment."""
        words = [str(program("kubectl")), f"--kubeconfig={kubeconfig()}", "get", "kafkacluster",
                 CLUSTER, f"--namespace={self.namespace}", "--watch", "-o",
                 "jsonpath={.status.controller}={.status.rolling}{'\\n'}"]  # fmt: skip
        seen: list[dict[str, Any]] = []
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                controller, _, rolling = line.decode().strip().partition("=")
                if rolling:
                    # Left out while nobody is known to be it.
                    state = {**json.loads(rolling), "controller": int(controller or -1)}
                    if not seen or seen[-1] != state:
                        seen.append(state)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield seen
        finally:
            process.terminate()
            process.wait()
            reader.join(10)
            assert process.stdout is not None
            process.stdout.close()


def settled(found: dict[str, Any]) -> bool:
    status = found.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    return bool(
        status.get("observedGeneration") == found["metadata"]["generation"]
        and conditions.get("Ready") == "True"
        and conditions.get("Progressing", "False") == "False"
        and conditions.get("PreferredLeaders", "True") == "True"
        and conditions.get("Degraded", "False") == "False"
        and not status.get("rolling")
    )


def zones() -> dict[str, str]:
    """Node → zone."""
    found = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    label = "topology.kubernetes.io/zone"
    return {n["metadata"]["name"]: n["metadata"]["labels"].get(label, "") for n in found}
