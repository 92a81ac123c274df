"""A SparkPipeline on a real API server; tests write the status that kubelet and driver would."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from odradek_operator.kubernetes.objects import Topic, plain
from odradek_operator.kubernetes.spark_worker import SparkWorker
from odradek_operator.kubernetes.topic_book import TopicBook
from odradek_operator.kubernetes.user_book import UserBook
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import connect

ROOT = Path(__file__).parents[3]
CRD = ROOT / "charts" / "odradek" / "files" / "spark" / "sparkapplications.yaml"
EXAMPLE = ROOT / "examples" / "pipelines" / "web-activity" / "pipeline.yaml"
API = "odradek.dev/v1alpha1"
READY = {"type": "Ready", "status": "True", "reason": "AllBrokersReady"}


class PipelineWorld:
    """A namespace, with what a user, the operator and the kubelet do in it."""

    def __init__(
        self, kubernetes: ControlPlane, namespace: str, operator: ControlPlane | None = None
    ) -> None:
        """`operator`: the operator's access to the API server, if it has fewer rights."""
        self.kubectl = kubernetes.kubectl
        self.kubernetes = kubernetes
        self.namespace = namespace
        self.client = connect(operator or kubernetes)
        self.topics, self.users = TopicBook(), UserBook()
        self.worker = SparkWorker(
            self.client, self.topics, self.users, [namespace], "odradek/spark:test", mode="auto"
        )

    def apply(self, document: dict[str, Any]) -> None:
        document["metadata"]["namespace"] = self.namespace
        self.kubernetes.apply(document)

    def pipeline(self, **changes: Any) -> None:
        document = yaml.safe_load(EXAMPLE.read_text())
        document["spec"] |= {"kubernetes": {"volumeClaim": "pipelines", "executor": {}}, **changes}
        if document["spec"]["kubernetes"] is None:
            del document["spec"]["kubernetes"]
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

    def one_pass(self) -> float:
        """With the Topics that the operator's watch would have delivered."""
        for one in self.client.list(Topic, namespace=self.namespace):
            self.topics.put(plain(one))
        return self.worker.one_pass()

    def settle(self, passes: int = 6) -> None:
        for _ in range(passes):
            self.one_pass()

    def ready(self) -> str:
        said = self.get("sparkpipeline", "page-views")["status"]["conditions"][0]
        return f"{said['status']} {said['reason']}: {said.get('message', '')}"

    def state(self, name: str = "page-views") -> str:
        found = self.get("sparkapplication", name)
        return str(found["status"]["applicationState"]["state"])

    def uid(self) -> str:
        """Of the driver's pod; empty if there is none or it is being deleted."""
        if "page-views-driver" not in self.names("pods"):
            return ""
        metadata = self.get("pod", "page-views-driver")["metadata"]
        return "" if "deletionTimestamp" in metadata else str(metadata["uid"])

    def phase(self, phase: str, exit_code: int | None = None) -> None:
        status: dict[str, Any] = {"phase": phase}
        if exit_code is not None:
            ended = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
            status["containerStatuses"] = [
                {"name": "spark-kubernetes-driver", "state": ended, "ready": False,
                 "restartCount": 0, "image": "i", "imageID": ""}
            ]  # fmt: skip
        self.status("pod", "page-views-driver", status)

    def kafka(self) -> None:
        """The KafkaCluster and the Topic that the example refers to, without any broker."""
        main = {"apiVersion": API, "kind": "KafkaCluster", "metadata": {"name": "main"}, "spec": {}}
        self.apply(main)
        self.apply({"apiVersion": API, "kind": "Topic", "metadata": {"name": "visits"},
                    "spec": {"cluster": {"name": "main"}}})  # fmt: skip

    def kafka_ready(self) -> None:
        said = {"bootstrapServers": "main-bootstrap:9092", "conditions": [READY]}
        self.status("kafkacluster", "main", said)

    def topic_ready(self) -> None:
        self.status("topic", "visits", {"conditions": [READY]})

    def eventually(self, look: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while True:
            self.one_pass()
            if look():
                return
            for name in self.names("pods"):  # no kubelet runs that would end it
                if "deletionTimestamp" in self.get("pod", name)["metadata"]:
                    self.kubectl("delete", "pod", name, "-n", self.namespace, "--force",
                                    "--grace-period=0")  # fmt: skip
            assert time.monotonic() < deadline, self.get("sparkapplication", "page-views")
            time.sleep(0.2)
