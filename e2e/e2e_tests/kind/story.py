"""A namespace on the kind cluster: what a story does there, and what it waits for.

    story.cluster(brokers=3)
    story.topic("orders", partitions=6, replicationFactor=3)
    story.settle()                              # Ready, nothing left to do
    with story.load("orders") as load:          # acks=all, from outside, over node ports
        story.annotate("odradek.dev/restart", "1")
        story.settle()
    story.judge(load)                           # nothing lost, nothing duplicated, no error seen

Objects are read and written with the official Python client (odradek_testkit.kubernetes.client),
which shares no code with the operator. kubectl is used where a story is about what a person types:
the columns of `kubectl get`, exec, logs, drain.
"""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ClusterMetadata

from odradek_e2e.kind.places import kubeconfig
from odradek_testkit.kubernetes.client import Document, ObjectClient
from odradek_testkit.kubernetes.programs import program
from odradek_testkit.load import Load
from odradek_testkit.waiting import wait_until

PATIENCE_S = 420.0  # two cores carry four nodes, the brokers and the clients
POLL_S = 1.0
NAMESPACE_END_S = 300.0
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
CLUSTER = "main"
API_VERSION = "odradek.dev/v1alpha1"


class KubectlError(Exception):
    """kubectl failed; the text is its command and its standard error."""


def kubectl(*words: str, stdin: str | None = None, timeout_s: float = 300.0) -> str:
    command = [str(program("kubectl")), f"--kubeconfig={kubeconfig()}", *words]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    if done.returncode != 0:
        raise KubectlError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def namespace(name: str) -> Document:
    """A namespace that accepts only pods of the restricted profile."""
    metadata = {"name": name, "labels": RESTRICTED}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def end_namespace(objects: ObjectClient, name: str) -> None:
    """Deletes it. The deletion completes, whatever a story did in it."""
    objects.delete("Namespace", name)
    wait_until(
        lambda: objects.get_if_any("Namespace", name) is None,
        f"namespace {name} is deleted",
        NAMESPACE_END_S,
        poll_s=POLL_S,
    )


class Story:
    """One namespace with one KafkaCluster, `main`."""

    def __init__(self, objects: ObjectClient, namespace: str, directory: Path) -> None:
        self.objects = objects
        self.namespace = namespace
        self.directory = directory  # for the producer's log, and the history if a check fails

    # -- objects -----------------------------------------------------------------------------------

    def kubectl(self, *words: str) -> str:
        """Runs a command that a person would type; returns its standard output."""
        return kubectl(f"--namespace={self.namespace}", *words)

    def apply(self, *documents: Document) -> None:
        for document in documents:
            self.objects.apply(document, self.namespace)

    def get(self, kind: str, name: str = CLUSTER) -> Document:
        return self.objects.get(kind, name, self.namespace)

    def find(self, kind: str, selector: str = "") -> list[Document]:
        return self.objects.find(kind, self.namespace, selector)

    def patch(self, kind: str, name: str, change: Document) -> None:
        self.objects.patch(kind, name, change, self.namespace)

    def uid(self, kind: str, name: str) -> str:
        """Empty if there is no such object, or if it is being deleted."""
        return self.objects.uid(kind, name, self.namespace)

    def delete(self, kind: str, name: str, *, force: bool = False, orphan: bool = False) -> None:
        """Does not wait. `force`: no grace period. `orphan`: its pods stay."""
        self.objects.delete(kind, name, self.namespace, force=force, orphan=orphan)

    def delete_and_wait(self, kind: str, name: str) -> None:
        """Until this object is gone; another one of its name may exist by then."""
        old = self.get(kind, name)["metadata"]["uid"]
        self.delete(kind, name)

        def gone() -> bool:
            found = self.objects.get_if_any(kind, name, self.namespace)
            return found is None or found["metadata"]["uid"] != old

        self.wait_until(gone, f"{kind} {name} is deleted")

    def events(self, reason: str = "") -> list[str]:
        found = self.find("Event")
        return [one["message"] for one in found if reason in ("", one["reason"])]

    def zones(self) -> dict[str, str]:
        """Node → zone."""
        label = "topology.kubernetes.io/zone"
        nodes = [node["metadata"] for node in self.objects.find("Node")]
        return {node["name"]: node["labels"].get(label, "") for node in nodes}

    def cordon(self, node: str, *, on: bool = True) -> None:
        """No new pods on the node; `on=False` ends it."""
        self.objects.patch("Node", node, {"spec": {"unschedulable": on or None}})

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
        self.patch("KafkaCluster", CLUSTER, {"spec": spec})

    def annotate(self, name: str, value: str) -> None:
        change = {"metadata": {"annotations": {name: value}}}
        self.patch("KafkaCluster", CLUSTER, change)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("KafkaCluster").get("status") or {}
        return found

    # -- waiting -----------------------------------------------------------------------------------

    def wait_until(
        self, condition: Callable[[], bool], what: str = "", deadline_s: float = PATIENCE_S
    ) -> float:
        """Polls every second; the seconds that it took. Load calls it too."""
        return wait_until(condition, what, max(deadline_s, PATIENCE_S), poll_s=POLL_S)

    def settle(self, deadline_s: float = PATIENCE_S) -> dict[str, Any]:
        """Waits until cluster and Topics are Ready and nothing is in progress; the status."""
        last: dict[str, Any] = {}

        def done() -> bool:
            nonlocal last
            last = self.get("KafkaCluster")
            return settled(last) and all(settled(one) for one in self.find("Topic"))

        try:
            self.wait_until(done, "the cluster is settled", deadline_s)
        except AssertionError as error:
            status = json.dumps(last.get("status"), indent=1)
            raise AssertionError(f"not settled: {status}") from error
        found: dict[str, Any] = last["status"]
        return found

    # -- brokers -----------------------------------------------------------------------------------

    def pods(self) -> dict[str, dict[str, Any]]:
        found = self.find("Pod", f"odradek.dev/cluster={CLUSTER}")
        return {one["metadata"]["name"]: one for one in found}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    @property
    def bootstrap(self) -> str:
        """For clients outside: the node and node port of every broker."""
        services = {one["metadata"]["name"]: one for one in self.find("Service")}
        found = []
        for name, pod in self.pods().items():
            service = services.get(f"{name}-external")
            if service and pod["status"].get("hostIP"):
                port = service["spec"]["ports"][0]["nodePort"]
                found.append(f"{pod['status']['hostIP']}:{port}")
        return ",".join(found)

    def partitions(self, topic: str) -> list[dict[str, list[int]]]:
        """Replicas and in-sync replicas of each partition, as an outside client sees them."""
        found = self._metadata().topics[topic].partitions.values()
        return [{"replicas": list(p.replicas), "isr": list(p.isrs)} for p in found]

    def topics(self) -> set[str]:
        return set(self._metadata().topics)

    def _metadata(self) -> ClusterMetadata:
        return AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=30)

    # -- clients -----------------------------------------------------------------------------------

    @contextmanager
    def load(
        self,
        topic: str,
        partitions: int = 6,
        security: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Iterator[Load]:
        """`settings` are the producer's. Its log of producer epochs goes to producer.log.

        `security`: librdkafka's settings of a user's listener, and its addresses."""
        noted = logging.FileHandler(self.directory / "producer.log", delay=True)
        noted.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger = logging.Logger(self.namespace, logging.DEBUG)
        logger.addHandler(noted)
        settings = {"debug": "eos", "log_level": 7, "logger": logger, **settings}
        try:
            with Load(
                self,
                topic,
                partitions=partitions,
                per_second=100,
                settings=settings,
                security=security,
            ) as load:
                yield load
                load.wait_for_acks(50)
        finally:
            noted.close()

    def judge(self, load: Load) -> str:
        checked = load.check()
        assert [write.error for write in load.history.errors()] == []
        took = sorted(w.done_at_s - w.sent_at_s for w in load.history.acked())
        counts = f"{checked} acknowledged, 0 lost, 0 duplicated, 0 errors, "
        return counts + f"p50 {took[len(took) // 2] * 1e3:.0f} ms, max {took[-1] * 1e3:.0f} ms"

    @contextmanager
    def watched(self) -> Iterator[list[Document]]:
        """Every state of `status.rolling` meanwhile, with the active controller at that moment."""
        seen: list[Document] = []
        stop = threading.Event()

        def read() -> None:
            for found in self.objects.watch("KafkaCluster", CLUSTER, self.namespace, stop):
                status = found.get("status") or {}
                if rolling := status.get("rolling"):
                    # The field is absent while no controller is known.
                    state = {**rolling, "controller": int(status.get("controller", -1))}
                    if not seen or seen[-1] != state:
                        seen.append(state)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield seen
        finally:
            stop.set()
            reader.join(60)


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
