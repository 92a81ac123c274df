"""A world for the operator: a real API server, a simulated kubelet, a model of Kafka.

    world = World(kubernetes, namespace)
    world.cluster(brokers=3)
    world.settle()             # passes of the operator and of the world, until nothing changes

Pods never run here. `World.play` makes them Ready by writing their status, and FakeKafka
(fake_kafka.py) does what brokers with the settings of their ConfigMap would do.
"""

from __future__ import annotations

import contextlib
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import httpx2
import msgspec
from lightkube import Client, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Node, Pod, Secret
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.types import PatchType

from odradek_api.crd import CRDS
from odradek_api.kinds import KINDS
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kubernetes import names, objects
from odradek_operator.kubernetes.cluster_worker import ClusterWorker, Outcome, Tools
from odradek_operator.kubernetes.properties import read_properties
from odradek_operator.kubernetes.rebalance_book import RebalanceBook
from odradek_operator.kubernetes.state import config_names, read_state
from odradek_operator.kubernetes.topic_book import TopicBook
from odradek_operator.kubernetes.user_book import UserBook
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.fake_certificates import FakeCertificates
from odradek_testkit.kubernetes.fake_kafka import FakeKafka

PATIENCE_S = 180.0  # a budget may remember an evicted pod for two minutes


class OperatorKilledError(BaseException):
    """Not caught by the operator: it ends at this point."""


class Wire(httpx2.BaseTransport):
    """Counts the writes, and kills the operator after one of them.

    `patient`: for the world itself; repeats a request that a starting API server answered with 429.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._patient = patient
        self._inner = httpx2.HTTPTransport(verify=False)
        self.writes: list[str] = []
        self.die_after: int | None = None
        self.refuse: Callable[[httpx2.Request], int | None] = lambda _: None  # a status

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if code := self.refuse(request):
            said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                    "reason": "Test", "message": f"the test says {code}"}  # fmt: skip
            return httpx2.Response(code, json=said, request=request)
        answer = self._inner.handle_request(request)
        while self._patient and answer.status_code == 429:
            answer.close()
            time.sleep(0.1)
            answer = self._inner.handle_request(request)
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.url.path}")
            if len(self.writes) == self.die_after:
                answer.read()
                answer.close()
                raise OperatorKilledError(self.writes[-1])
        return answer

    def close(self) -> None:
        self._inner.close()


def connect(kubernetes: ControlPlane, wire: Wire | None = None) -> Client:
    config = KubeConfig.from_file(kubernetes.kubeconfig)
    return Client(config=config.get(), transport=wire or Wire(patient=True), trust_env=False)


def three_zones(kubernetes: ControlPlane) -> None:
    """Three nodes in three zones, and our CRDs, as far as they can be used."""
    for zone in "abc":
        kubernetes.add_node(f"node-{zone}", zone=f"zone-{zone}")
        kubernetes.kubectl("label", "node", f"node-{zone}", "world=yes")
    kubernetes.kubectl("apply", "-f", str(CRDS))
    kubernetes.kubectl("wait", "--for=condition=Established", "crd", "--all")
    for kind in KINDS.values():  # kubectl retries while the storage of a new kind starts
        kubernetes.kubectl("get", kind.plural, "--all-namespaces")


class World:
    """One KafkaCluster in one namespace, its kubelet and its Kafka, and an operator for them."""

    def __init__(self, kubernetes: ControlPlane, namespace: str, name: str = "main") -> None:
        self.kubernetes = kubernetes
        self.namespace, self.name = namespace, name
        self.key = f"{namespace}/{name}"
        self.kafka = FakeKafka()
        self.certificates = FakeCertificates()
        self.own = connect(kubernetes)  # the world's own client; its writes are not counted
        self.started: dict[str, dict[str, str]] = {}  # pod uid → settings
        self.first_uids: list[str] = []
        self.first_issuers: set[str] = set()  # key ids of the CAs whose certificates were served
        self.namespaces = [namespace]  # of the Topics and KafkaUsers
        self.client: Client | None = None
        self.operator()

    def operator(self, die_after: int | None = None) -> None:
        """A new operator without any state; the old one counts as killed."""
        if self.client is not None:
            self.client.close()
        self.wire = Wire()
        self.wire.die_after = die_after
        self.client = connect(self.kubernetes, self.wire)
        self.book, self.user_book = TopicBook(), UserBook()
        self.rebalance_book = RebalanceBook()
        self.tools = Tools(
            self.client,
            self.book,
            self.user_book,
            self.rebalance_book,
            self.node_racks,
            lambda spec: spec.image or "odradek/broker:test",
            lambda: cast(KafkaAdmin, self.kafka),
            self.certificates.ask,
        )
        self.worker = ClusterWorker(self.key, self.tools)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
        self.own.close()

    def node_racks(self, label: str) -> dict[str, str]:
        nodes = self.own.list(Node, labels={"world": "yes"})
        found = {n.metadata.name or "": (n.metadata.labels or {}).get(label)
                 for n in nodes if n.metadata}  # fmt: skip
        return {node: rack for node, rack in found.items() if rack}

    # -- resources ---------------------------------------------------------------------------------

    def cluster(self, annotations: Mapping[str, str] | None = None, **spec: Any) -> None:
        self.apply("KafkaCluster", self.name, spec, annotations)

    def topic(self, resource: str, /, **spec: Any) -> None:
        self.apply("Topic", resource, {"cluster": {"name": self.name}, **spec})

    def user(
        self, resource: str, annotations: Mapping[str, str] | None = None, /, **spec: Any
    ) -> None:
        self.apply("KafkaUser", resource, {"cluster": {"name": self.name}, **spec}, annotations)

    def rebalance(
        self, resource: str, annotations: Mapping[str, str] | None = None, /, **spec: Any
    ) -> None:
        full = {"cluster": {"name": self.name}, **spec}
        self.apply("KafkaRebalance", resource, full, annotations)

    def apply(
        self, kind: str, name: str, spec: Any, annotations: Mapping[str, str] | None = None
    ) -> None:
        metadata: dict[str, Any] = {"name": name, "namespace": self.namespace}
        if annotations:
            metadata["annotations"] = dict(annotations)
        document = {"apiVersion": "odradek.dev/v1alpha1", "kind": kind, "metadata": metadata}
        resource = objects.RESOURCES[kind]({**document, "spec": spec})
        self.own.apply(resource, field_manager="user", force=True)

    def get(self, kind: str, name: str | None = None) -> dict[str, Any] | None:
        return objects.get(self.own, kind, f"{self.namespace}/{name or self.name}")

    def status(self, kind: str = "KafkaCluster", name: str | None = None) -> dict[str, Any]:
        return (self.get(kind, name) or {}).get("status") or {}

    def condition(self, of: str, kind: str = "KafkaCluster", name: str | None = None) -> str:
        """ "True AllBrokersReady"."""
        for one in self.status(kind, name).get("conditions", ()):
            if one["type"] == of:
                return f"{one['status']} {one['reason']}"
        return ""

    # -- time --------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Gives the operator the events that its watch would have delivered by now."""
        books: dict[Any, Any] = {
            objects.Topic: self.book,
            objects.KafkaUser: self.user_book,
            objects.KafkaRebalance: self.rebalance_book,
        }
        for kind, book in books.items():
            documents, versions = [], []
            for namespace in self.namespaces:
                found = self.own.list(kind, namespace=namespace)
                documents += [objects.plain(one) for one in found]
                versions.append(int(found.resourceVersion))
            book.replace_all(documents, min(versions))

    def one_pass(self) -> Outcome:
        self.watch()
        return self.worker.one_pass()

    def try_pass(self) -> Outcome | None:
        """None if the API server refused; the operator would retry later."""
        try:
            return self.one_pass()
        except ApiError as error:
            if error.status.code not in (409, 429, 500, 503):
                raise
            return None

    def play(self) -> bool:
        """One step of the kubelet and of Kafka; whether something changed."""
        changed = self._kubelet()
        changed = self.certificates.load(self._secrets(), self.kafka.up) or changed
        return self.kafka.live_on() or changed

    def _secrets(self) -> dict[str, dict[str, bytes]]:
        """The Secrets of the cluster, as the kubelet brings them into the pods."""
        labels: Any = {names.CLUSTER_LABEL: self.name}
        found = self.own.list(Secret, namespace=self.namespace, labels=labels)
        return {
            str(one.metadata.name).removeprefix(f"{self.name}-"): {
                key: b64decode(value) for key, value in (one.data or {}).items()
            }
            for one in found
            if one.metadata
        }

    def _kubelet(self) -> bool:
        up, changed = {}, False
        labels: Any = {names.CLUSTER_LABEL: self.name}
        pods = list(self.own.list(Pod, namespace=self.namespace, labels=labels))
        disrupted = self._disrupted()  # after the pods: a budget lists a pod before it is deleted
        for pod in pods:
            assert pod.metadata is not None
            assert pod.metadata.name is not None
            if pod.metadata.deletionTimestamp is not None and pod.metadata.name in disrupted:
                changed = True
                continue
            if pod.metadata.deletionTimestamp is not None:
                with contextlib.suppress(ApiError):  # deleted in between
                    self.own.delete(
                        Pod, pod.metadata.name, namespace=self.namespace, grace_period=0
                    )
                changed = True
                continue
            conditions = (pod.status.conditions if pod.status else None) or ()
            if not any(c.type == "Ready" and c.status == "True" for c in conditions):
                self._make_ready(pod)
                changed = True
                continue
            settings = self._settings_of(pod)
            up[int(settings["node.id"])] = settings
        changed = changed or up.keys() != self.kafka.alive
        self.kafka.set_up(up)
        return changed

    def _disrupted(self) -> set[str]:
        """The evicted pods that the budgets count.

        A budget lists them by name, and the disruption controller removes a name only in a pass
        that sees the pod deleted or terminating, or two minutes later (1.34: disruption.go,
        buildDisruptedPodMap). Real pods terminate slowly enough; simulated ones wait for that pass.
        """
        budgets = self.own.list(PodDisruptionBudget, namespace=self.namespace)
        found = [budget.status.disruptedPods for budget in budgets if budget.status]
        return {name for names_ in found for name in names_ or {}}

    def _make_ready(self, pod: Pod) -> None:
        assert pod.metadata is not None
        assert pod.metadata.name is not None
        if pod.spec is not None and pod.spec.nodeName is None:
            self._bind(pod.metadata.name, (pod.metadata.labels or {})[names.RACK_LABEL])
        when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": when}
        status = {"phase": "Running", "conditions": [ready]}
        self.own.patch(Pod.Status, pod.metadata.name, {"status": status}, namespace=self.namespace,
                       patch_type=PatchType.STRATEGIC)  # fmt: skip

    def _bind(self, pod: str, rack: str) -> None:
        """Binds claims as the scheduler would, if there were volumes.

        A pod without a node is deleted at once, so an eviction would never be seen as terminating.
        """
        nodes = self.own.list(Node, labels={"world": "yes"})
        labels = {n.metadata.name: (n.metadata.labels or {}).values() for n in nodes if n.metadata}
        node = next((n for n, of in labels.items() if rack in of), "node-a")
        target = ObjectReference(apiVersion="v1", kind="Node", name=node)
        binding = Pod.Binding(target, metadata=ObjectMeta(name=pod, namespace=self.namespace))
        try:
            self.own.create(binding, pod, namespace=self.namespace)
        except msgspec.ValidationError:  # the answer is a Status, not a Binding
            pass
        except ApiError as error:
            if error.status.code != 409:  # the scheduler was first: the pod's volumes are bound
                raise

    def _settings_of(self, pod: Pod) -> dict[str, str]:
        assert pod.metadata is not None
        assert pod.metadata.uid is not None
        if pod.metadata.uid not in self.started:
            volumes = (pod.spec.volumes if pod.spec else None) or ()
            name = next(v.configMap.name for v in volumes if v.configMap is not None)
            config = self.own.get(ConfigMap, name or "", namespace=self.namespace)
            text = (config.data or {})[f"{pod.metadata.name}.properties"]
            self.started[pod.metadata.uid] = read_properties(text)
        return self.started[pod.metadata.uid]

    def settle(self, patience_s: float = PATIENCE_S) -> None:
        """Passes and steps, until nothing changes three times in a row."""
        deadline, quiet = time.monotonic() + patience_s, 0
        while quiet < 3:
            idle = self.try_pass() in (Outcome.IDLE, Outcome.GONE)
            moved = self.play()
            quiet = quiet + 1 if idle and not moved else 0
            assert time.monotonic() < deadline, self.where()
        if self.get("KafkaCluster") is not None:  # a deleted cluster ends as a whole
            assert self.kafka.away_max <= 1, "two replicas of a partition were unavailable at once"

    def pod_uids(self) -> list[str]:
        labels: Any = {names.CLUSTER_LABEL: self.name}
        pods = self.own.list(Pod, namespace=self.namespace, labels=labels)
        return [pod.metadata.uid or "" for pod in pods if pod.metadata]

    def leftovers(self) -> list[str]:
        """Faults of a settled cluster: unused ConfigMaps and claims, wrong counts."""
        state = read_state(self.own, self.namespace, self.name)
        templates = [one.spec.template for one in state.sets.values() if one.spec]
        used = {n for one in (*state.pods.values(), *templates) for n in config_names(one)}
        left = [f"ConfigMap {name}" for name in state.config_maps if name not in used]
        brokers = {broker["id"] for broker in self.status().get("brokers", ())}
        brokers |= {controller["id"] for controller in self.status().get("controllers", ())}
        for rack in state.all_racks():
            alive = set(rack.ids) - rack.removed
            if alive - brokers or rack.replicas != len(alive):
                left.append(f"{rack} of brokers {sorted(brokers)}")
        spec = (self.get("KafkaCluster") or {})["spec"]
        if spec["storage"]["deletionPolicy"] == "Delete":
            left += [c for c in state.claims if not any(c.endswith(pod) for pod in state.pods)]
        return left

    def where(self) -> str:
        budgets = self.own.list(PodDisruptionBudget, namespace=self.namespace)
        return (
            f"no end: {self.status()}; {self.wire.writes[-10:]}; {self.kafka.calls[-5:]}; "
            f"{[budget.status for budget in budgets]}"
        )
