"""SparkPipelines on a real API server; the driver's pod is played by hand."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek_e2e.control_plane import ControlPlane
from odradek_operator.process.spark import PROGRESS, SparkWorker
from operator_tests.kubernetes.world import connect

ROOT = Path(__file__).parents[3]
CRD = ROOT / "spark-on-k8s" / "kubernetes" / "sparkapplications-crd.yaml"
EXAMPLE = ROOT / "examples" / "pipelines" / "web-activity" / "pipeline.yaml"


class Cluster:
    """A namespace, what a user does in it, and what the kubelet would."""

    def __init__(self, kubernetes: ControlPlane, namespace: str) -> None:
        self.kubectl = kubernetes.kubectl
        self.kubernetes = kubernetes
        self.namespace = namespace
        self.client = connect(kubernetes)
        self.worker = SparkWorker(self.client, [namespace], "odradek/spark:test", native=True)

    def apply(self, document: dict[str, Any]) -> None:
        document["metadata"]["namespace"] = self.namespace
        self.kubernetes.apply(document)

    def pipeline(self, **changes: Any) -> None:
        document = yaml.safe_load(EXAMPLE.read_text())
        document["spec"] |= {"kubernetes": {"volumeClaim": "pipelines"}, **changes}
        self.apply(document)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.kubectl("get", kind, name, "-n", self.namespace, "-o", "json")
        )
        return found

    def names(self, kind: str) -> list[str]:
        listed = json.loads(self.kubectl("get", kind, "-n", self.namespace, "-o", "json"))
        return [one["metadata"]["name"] for one in listed["items"]]

    def status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        patch = json.dumps({"status": status})
        self.kubectl("patch", kind, name, "-n", self.namespace, "--subresource=status",
                     "--type=merge", "-p", patch)  # fmt: skip

    def settle(self, passes: int = 6) -> None:
        for _ in range(passes):
            self.worker.one_pass()

    def ready(self) -> str:
        said = self.get("sparkpipeline", "page-views")["status"]["conditions"][0]
        return f"{said['status']} {said['reason']}: {said.get('message', '')}"

    def state(self, name: str = "page-views") -> str:
        found = self.get("sparkapplication", name)
        return str(found["status"]["applicationState"]["state"])

    def phase(self, phase: str, exit_code: int | None = None) -> None:
        status: dict[str, Any] = {"phase": phase}
        if exit_code is not None:
            ended = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
            status["containerStatuses"] = [
                {"name": "spark-kubernetes-driver", "state": ended, "ready": False,
                 "restartCount": 0, "image": "i", "imageID": ""}
            ]  # fmt: skip
        self.status("pod", "page-views-driver", status)


@pytest.fixture
def cluster(kubernetes: ControlPlane, namespace: str) -> Iterator[Cluster]:
    kubernetes.kubectl("apply", "-f", str(CRD))
    kubernetes.kubectl("wait", "--for=condition=Established", "crd",
                       "sparkapplications.sparkoperator.k8s.io")  # fmt: skip
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubernetes.kubectl("label", "namespace", namespace, label)
    made = Cluster(kubernetes, namespace)
    yield made
    made.client.close()


def test_a_pipeline_lives(cluster: Cluster) -> None:
    """Waits, runs, tells its lag, fails, is tried again, is suspended, goes with all it made."""
    cluster.pipeline(restartPolicy={"type": "OnFailure", "retries": 1, "intervalSeconds": 1})
    cluster.settle(2)
    key = f"{cluster.namespace}/main"
    assert cluster.ready() == f"False Waiting: there is no KafkaCluster {key}"

    api = "odradek.dev/v1alpha1"
    cluster.apply({"apiVersion": api, "kind": "KafkaCluster", "metadata": {"name": "main"},
                   "spec": {}})  # fmt: skip
    cluster.apply({"apiVersion": api, "kind": "Topic", "metadata": {"name": "visits"},
                   "spec": {"cluster": {"name": "main"}}})  # fmt: skip
    cluster.settle(2)
    assert cluster.ready() == f"False Waiting: KafkaCluster {key} is not ready"
    ready = {"type": "Ready", "status": "True", "reason": "AllBrokersReady"}
    cluster.status("kafkacluster", "main",
                   {"bootstrapServers": "main-bootstrap:9092", "conditions": [ready]})  # fmt: skip
    cluster.settle(2)
    assert cluster.ready() == "False Waiting: topic visits is not ready"
    assert cluster.names("sparkapplications") == []
    cluster.status("topic", "visits", {"conditions": [ready]})

    cluster.settle()
    assert cluster.state() == "SUBMITTED"
    pod = cluster.get("pod", "page-views-driver")
    assert pod["spec"]["containers"][0]["args"][0] == "driver"
    assert set(cluster.names("services")) == {"page-views-driver", "page-views-ui-svc"}
    (config,) = [n for n in cluster.names("configmaps") if n.startswith("page-views-job-")]
    job = json.loads(cluster.get("configmap", config)["data"]["job.json"])
    assert job["clusters"] == {key: "main-bootstrap:9092"}

    cluster.phase("Running")
    main = {"batch": 4, "processRate": 10.5, "lag": {"visits": 7}}
    said = {"pipeline": "x", "state": "Running", "queries": {"main": main}}
    cluster.kubectl("annotate", "pod", "page-views-driver", "-n", cluster.namespace,
                    f"{PROGRESS}={json.dumps(said)}")  # fmt: skip
    cluster.settle()
    assert cluster.state() == "RUNNING"
    status = cluster.get("sparkpipeline", "page-views")["status"]
    assert (status["state"], status["lagRecords"], status["batch"]) == ("RUNNING", 7, 4)
    assert status["lag"] == [{"topic": "visits", "records": 7}]
    assert cluster.ready().startswith("True Running: the driver runs")
    before = cluster.get("sparkpipeline", "page-views")["metadata"]["resourceVersion"]
    cluster.settle(3)
    after = cluster.get("sparkpipeline", "page-views")["metadata"]["resourceVersion"]
    assert before == after, "a pass with no news wrote something"

    cluster.phase("Failed", 1)
    first = pod["metadata"]["uid"]

    def another() -> bool:
        cluster.worker.one_pass()
        names = cluster.names("pods")
        return "page-views-driver" in names and (
            cluster.get("pod", "page-views-driver")["metadata"]["uid"] != first
        )

    _eventually(cluster, another)
    assert cluster.get("sparkapplication", "page-views")["status"]["executionAttempts"] == 2

    cluster.pipeline(suspend=True, restartPolicy={"type": "Never"})

    def suspended() -> bool:
        cluster.worker.one_pass()
        if "page-views-driver" in cluster.names("pods"):
            return False
        return cluster.state() == "SUSPENDED"

    _eventually(cluster, suspended)


def _eventually(cluster: Cluster, look: Any) -> None:
    import time

    deadline = time.monotonic() + 60
    while not look():
        for name in cluster.names("pods"):  # no kubelet is here to end what is being deleted
            if "deletionTimestamp" in cluster.get("pod", name)["metadata"]:
                cluster.kubectl("delete", "pod", name, "-n", cluster.namespace, "--force",
                                "--grace-period=0")  # fmt: skip
        assert time.monotonic() < deadline, cluster.get("sparkapplication", "page-views")
        time.sleep(0.2)


def test_a_wrong_pipeline_says_so(cluster: Cluster) -> None:
    cluster.pipeline(steps=[{"python": "a.py", "inputs": ["nobody"]}])
    cluster.settle(2)
    assert cluster.ready().startswith("False InvalidSpec: spec.steps[0].inputs: there is no view")


def test_a_checkpoint_has_to_be_shared(cluster: Cluster) -> None:
    cluster.pipeline(kubernetes={})
    cluster.settle(2)
    assert cluster.ready().startswith("False InvalidSpec: spec.checkpoint: driver and executors")


def test_the_api_server_refuses_two_sinks(cluster: Cluster) -> None:
    with pytest.raises(Exception, match="exactly one of topic, table, mirror and console"):
        cluster.pipeline(sink={"console": {}, "table": {"path": "x"}})


def test_without_the_crd_nothing_happens(kubernetes: ControlPlane, namespace: str) -> None:
    client = connect(kubernetes)
    try:
        worker = SparkWorker(client, [namespace], "i", native=True)
        assert worker.one_pass() > 0
    finally:
        client.close()
