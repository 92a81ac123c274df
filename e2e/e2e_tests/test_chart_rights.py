"""The rights of the chart's service account: enough for everything the operator does, and no more.

Checked with the API server's access reviews, and by running an operator with only these rights.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import httpx2
import pytest

from e2e_tests.conftest import make_namespace
from odradek_api.base import RESTART_ANNOTATION
from odradek_api.kafka_user.rules import ROTATE_ANNOTATION
from odradek_e2e.chart import CHART, objects, render
from odradek_e2e.release import Release
from odradek_testkit.kubernetes import world as worlds
from odradek_testkit.kubernetes.client import ObjectClient
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.ports import free_port
from odradek_testkit.waiting import wait_until

PATIENCE_S = 60.0
OURS, APPS, CORE, POLICY = "odradek.dev", "apps", "", "policy"
NETWORK, LEASES = "networking.k8s.io", "coordination.k8s.io"

# In the namespaces that it watches. group/resource[/subresource]: verbs.
ALLOWED = {
    (OURS, "kafkaclusters"): "get list watch",
    (OURS, "topics"): "get list watch patch",
    (OURS, "kafkausers"): "get list watch patch",
    (OURS, "kafkarebalances"): "get list watch patch",
    (OURS, "kafkarebalances/status"): "patch",
    (OURS, "kafkaclusters/status"): "patch",
    (OURS, "topics/status"): "patch",
    (OURS, "kafkausers/status"): "patch",
    (CORE, "secrets"): "get create update patch delete",
    (OURS, "kafkaclusters/finalizers"): "update",
    ("cert-manager.io", "certificates"): "get create patch",
    (APPS, "statefulsets"): "list watch create patch delete",
    (CORE, "configmaps"): "list create patch delete",
    (CORE, "services"): "list create patch delete",
    (CORE, "serviceaccounts"): "list create patch",
    (POLICY, "poddisruptionbudgets"): "list create patch",
    (NETWORK, "networkpolicies"): "list create patch delete",
    (CORE, "persistentvolumeclaims"): "list patch delete",
    (CORE, "pods"): "list watch delete",
    (CORE, "pods/eviction"): "create",
    (CORE, "events"): "create",
}
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
RESOURCES = [
    *ALLOWED,
    (CORE, "nodes"), (CORE, "namespaces"), (CORE, "persistentvolumes"),
    (CORE, "pods/exec"), (CORE, "pods/log"), (CORE, "serviceaccounts/token"),
    (APPS, "deployments"), (APPS, "daemonsets"), ("batch", "jobs"), (LEASES, "leases"),
    ("rbac.authorization.k8s.io", "roles"), ("rbac.authorization.k8s.io", "clusterroles"),
    ("apiextensions.k8s.io", "customresourcedefinitions"), ("storage.k8s.io", "storageclasses"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
]  # fmt: skip
# Not used by the run below, and why the chart grants them.
UNUSED = {
    (OURS, "kafkaclusters", "list"), (OURS, "kafkaclusters", "watch"),  # the process watches
    (OURS, "topics", "list"), (OURS, "topics", "watch"), (OURS, "topics", "get"),
    (OURS, "kafkausers", "list"), (OURS, "kafkausers", "watch"), (OURS, "kafkausers", "get"),
    (OURS, "kafkarebalances", "list"), (OURS, "kafkarebalances", "watch"),
    (OURS, "kafkarebalances", "get"),
    # Moves of a KafkaRebalance: not part of this run, but of test_operator_is_killed.py.
    (OURS, "kafkarebalances", "patch"), (OURS, "kafkarebalances/status", "patch"),
    (APPS, "statefulsets", "watch"), (CORE, "pods", "watch"),
    (CORE, "secrets", "patch"),  # certificates of a cluster with TLS, which this one is not
    # Certificates of cert-manager: operator_tests/kubernetes/test_cert_manager.py.
    *(("cert-manager.io", "certificates", verb) for verb in ("get", "create", "patch")),
    (CORE, "pods", "delete"),  # the second broker of a step with rolling.maxUnavailable
    (OURS, "kafkaclusters/finalizers", "update"),  # enforced by an admission plugin only
}  # fmt: skip
# Their rights are in test_chart_spark.py.
WITHOUT_SPARK = "--set=spark.mode=off"
NODES = {(CORE, "nodes"): "get list watch"}
LEASE = {(LEASES, "leases"): "create"}


def rights(
    api: ObjectClient, user: str, namespace: str, name: str = ""
) -> dict[tuple[str, str], str]:
    """The verbs that a service account has on RESOURCES in a namespace ("": in all namespaces)."""
    accounts = ["system:serviceaccounts", "system:authenticated"]
    found: dict[tuple[str, str], list[str]] = {}
    for (group, resource), verb in product(RESOURCES, VERBS):
        kind, _, subresource = resource.partition("/")
        attributes = {"group": group, "resource": kind, "subresource": subresource, "verb": verb,
                      "namespace": namespace, "name": name}  # fmt: skip
        spec = {"user": user, "groups": accounts, "resourceAttributes": attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                  "spec": spec}  # fmt: skip
        if api.create(review)["status"]["allowed"]:
            found.setdefault((group, resource), []).append(verb)
    return {key: " ".join(verbs) for key, verbs in found.items()}


def has_topics(api: ObjectClient, user: str, namespace: str) -> bool:
    return (OURS, "topics") in rights(api, user, namespace)


def same(found: dict[tuple[str, str], str], *allowed: dict[tuple[str, str], str]) -> bool:
    merged: dict[tuple[str, str], set[str]] = {}
    for one in allowed:
        for key, verbs in one.items():
            merged.setdefault(key, set()).update(verbs.split())
    return {key: set(verbs.split()) for key, verbs in found.items()} == merged


def test_in_its_namespace_and_nowhere_else(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str
) -> None:
    with Release(kubernetes, namespace, WITHOUT_SPARK) as release:
        assert same(rights(api, release.account, namespace), ALLOWED, NODES, LEASE)
        assert same(rights(api, release.account, "default"), NODES)
        assert same(rights(api, release.account, ""), NODES)


def test_without_nodes_it_has_no_right_of_the_whole_cluster(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str
) -> None:
    with Release(kubernetes, namespace, WITHOUT_SPARK, "--set=readNodes=false") as release:
        assert same(rights(api, release.account, namespace), ALLOWED, LEASE)
        assert same(rights(api, release.account, ""))


def test_in_named_namespaces(kubernetes: ControlPlane, api: ObjectClient, namespace: str) -> None:
    make_namespace(api, "named")
    with Release(kubernetes, namespace, WITHOUT_SPARK, "--set=watch.namespaces={named}") as release:
        assert same(rights(api, release.account, "named"), ALLOWED, NODES)
        assert same(rights(api, release.account, namespace), NODES, LEASE)
    api.delete("Namespace", "named")


def test_cluster_wide(kubernetes: ControlPlane, api: ObjectClient, namespace: str) -> None:
    with Release(kubernetes, namespace, WITHOUT_SPARK, "--set=watch.scope=Cluster") as release:
        assert same(rights(api, release.account, ""), ALLOWED, NODES)
        assert same(rights(api, release.account, namespace), ALLOWED, NODES, LEASE)


def test_the_lease_is_its_own_and_no_other(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str
) -> None:
    with Release(kubernetes, namespace, WITHOUT_SPARK) as release:
        mine = rights(api, release.account, namespace, name="odradek-operator")
        others = rights(api, release.account, namespace, name="another")
        assert set(mine[LEASES, "leases"].split()) == {"get", "create", "update"}
        assert others[LEASES, "leases"] == "create"


def test_editors_of_a_namespace_edit_clusters_and_viewers_see_them(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str
) -> None:
    with Release(kubernetes, namespace, WITHOUT_SPARK):
        for role in ("edit", "view"):
            group = "rbac.authorization.k8s.io"
            bound = {"apiGroup": group, "kind": "ClusterRole", "name": role}
            user = {"apiGroup": group, "kind": "User", "name": f"{role}or"}
            binding = {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": role},
                "roleRef": bound,
                "subjects": [user],
            }
            api.apply(binding, namespace)
        # The controller manager adds the rules to the roles a moment later.
        for name in ("editor", "viewor"):
            wait_until(
                partial(has_topics, api, name, namespace), f"the rights of {name}", PATIENCE_S
            )
        editor, viewer = (rights(api, f"{r}or", namespace) for r in ("edit", "view"))
        for kind in ("kafkaclusters", "topics", "kafkausers", "kafkarebalances"):
            assert editor[OURS, kind].split() == VERBS
            assert viewer[OURS, kind] == "get list watch"
        assert (OURS, "topics/status") not in editor or "patch" not in editor[OURS, "topics/status"]


# -- a run ----------------------------------------------------------------------------------------


class Guarded(worlds.Wire):
    """Records what was done and what was forbidden, also where the operator ignores it."""

    # Of all operators of a test.
    used: set[tuple[str, str, str]] = set()  # noqa: RUF012
    forbidden: list[str] = []  # noqa: RUF012

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = super().handle_request(request)
        if self._patient:
            return answer  # the world's own
        if answer.status_code == 403:
            self.forbidden.append(f"{request.method} {request.url.path}")
        parts = request.url.path.strip("/").split("/")
        group, rest = (CORE, parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        _, _, resource, *named = rest  # namespaces/NAME/pods/NAME/eviction
        verbs = {"GET": "get" if named else "list", "POST": "create", "PUT": "update"}
        verb = verbs.get(request.method, request.method.lower())
        self.used.add((group, "/".join([resource, *named[1:]]), verb))
        if verb == "patch" and answer.status_code == 201:  # server-side apply of a new object
            self.used.add((group, resource, "create"))
        return answer


class LimitedWorld(worlds.World):
    """The operator has a service account's rights; kubelet and user have all rights."""

    account_kubeconfig: Path

    def operator(self, die_after: int | None = None) -> None:
        whole = self.kubernetes
        limited = SimpleNamespace(kubeconfig=self.account_kubeconfig)
        self.kubernetes = cast(ControlPlane, limited)
        super().operator(die_after)
        self.kubernetes = whole


def test_a_life_of_a_cluster_with_these_rights(
    kubernetes: ControlPlane,
    api: ObjectClient,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    1. Three brokers and a topic; a NetworkPolicy and Services for clients outside.
    2. A restart of all by annotation, with new settings: pods are evicted, the old file goes.
    3. Six brokers, then three again with their volumes deleted.
    4. The Services outside and the policy are taken away; a topic is deleted with its resource.
    5. A second volume for each: the StatefulSets are recreated around their pods.
    6. A user, a new password for it, and its end.
    No request is forbidden, and no right is unused.
    """
    monkeypatch.setattr(worlds, "Wire", Guarded)
    monkeypatch.setattr(Guarded, "forbidden", [])
    monkeypatch.setattr(Guarded, "used", set())
    for node in api.find("Node"):
        api.patch("Node", node["metadata"]["name"], {"metadata": {"labels": {"world": "yes"}}})
    with Release(kubernetes, namespace, WITHOUT_SPARK) as release, ExitStack() as stack:
        LimitedWorld.account_kubeconfig = release.account_kubeconfig(tmp_path / "kubeconfig")
        world = LimitedWorld(kubernetes, namespace)
        stack.callback(world.close)
        outside: dict[str, Any] = {
            "networkPolicy": {"enabled": True}, "storage": {"deletionPolicy": "Delete"},
            "listeners": {"external": {"type": "NodePort"}},
        }  # fmt: skip
        world.cluster(brokers=3, **outside)
        world.topic("orders", partitions=6, replicationFactor=3, deletionPolicy="Delete")
        world.settle()
        world.cluster(
            {RESTART_ANNOTATION: "now"}, brokers=3, config={"num.io.threads": 3}, **outside
        )
        world.settle()
        assert any(write.endswith("/eviction") for write in world.wire.writes)
        world.cluster(brokers=6, rebalance="auto", **outside)
        world.settle()
        world.cluster(brokers=3, rebalance="auto", **outside)
        world.settle()
        world.cluster(brokers=3, storage={"deletionPolicy": "Delete"})
        api.delete("Topic", "orders", namespace)
        world.settle()
        world.cluster(brokers=3, storage={"deletionPolicy": "Delete", "volumes": 2})
        world.settle()
        for rotation in ("1", "2"):
            world.user("alice", {ROTATE_ANNOTATION: rotation})
            world.settle()
        api.delete("KafkaUser", "alice", namespace)
        world.settle()
        assert world.worker.failures == []
        assert Guarded.forbidden == []
        allowed = {(*key, verb) for key, verbs in ALLOWED.items() for verb in verbs.split()}
        assert allowed - Guarded.used == UNUSED
        assert "BrokerMissing" in {event["reason"] for event in api.find("Event", namespace)}


class Replica:
    """The operator's process, started like the Deployment's container, with the account's token."""

    def __init__(self, args: list[str], kubeconfig: Path, log: Path) -> None:
        self.port, self.log = free_port(), log
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "odradek_operator.main", *args, f"--port={self.port}"],
                env=environment, stdout=out, stderr=out,
            )  # fmt: skip

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def helm_test() -> ModuleType:
    """The program of the pod of `helm test`."""
    spec = importlib.util.spec_from_file_location("leader", CHART / "files" / "leader.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def replicas(
    kubernetes: ControlPlane, api: ObjectClient, namespace: str, tmp_path: Path
) -> Iterator[list[Replica]]:
    (deployment,) = [o for o in objects(render(namespace=namespace)) if o["kind"] == "Deployment"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    args = [arg.replace("$(POD_NAMESPACE)", namespace) for arg in container["args"]]
    with Release(kubernetes, namespace, WITHOUT_SPARK) as release:
        kubeconfig = release.account_kubeconfig(tmp_path / "kubeconfig")
        running = [Replica(args, kubeconfig, tmp_path / f"operator-{n}.log") for n in range(2)]
        yield running
        for replica in running:
            replica.stop()
        api.delete("KafkaCluster", "main", namespace)


def test_two_replicas_as_the_deployment_starts_them(
    api: ObjectClient, namespace: str, replicas: list[Replica], helm_test: ModuleType
) -> None:
    """The active one creates the brokers of a cluster; it is ended, and the other takes over."""

    def leading() -> list[int]:
        answers = []
        for n, replica in enumerate(replicas):
            if replica.process.poll() is None:
                try:
                    ready, leads = helm_test.ask("127.0.0.1", replica.port)
                except OSError:
                    return []
                assert ready
                answers += [n] if leads else []
        return answers

    wait_until(lambda: len(leading()) == 1, "a leader", PATIENCE_S)
    api.apply(
        {
            "apiVersion": "odradek.dev/v1alpha1",
            "kind": "KafkaCluster",
            "metadata": {"name": "main"},
            "spec": {"brokers": 3},
        },
        namespace,
    )
    wait_until(lambda: len(api.find("StatefulSet", namespace)) == 3, "StatefulSets", PATIENCE_S)
    (first,) = leading()
    replicas[first].stop()
    assert replicas[first].process.returncode == 0
    wait_until(lambda: leading() == [1 - first], "the other leads", PATIENCE_S)
    old = {one["metadata"]["uid"] for one in api.find("StatefulSet", namespace)}
    for one in api.find("StatefulSet", namespace):
        api.delete("StatefulSet", one["metadata"]["name"], namespace)

    def recreated() -> bool:
        found = {one["metadata"]["uid"] for one in api.find("StatefulSet", namespace)}
        return len(found) == 3 and not found & old

    wait_until(recreated, "the StatefulSets are created again", PATIENCE_S)
    for replica in replicas:
        said = replica.log.read_text()
        for word in ("forbidden", "Forbidden", "403", "permission", "Traceback"):
            assert word not in said, said
