"""helm, and a real API server on which the chart is installed; one per test process."""

from collections.abc import Iterator, Mapping

import pytest

from odradek_testkit.kubernetes.client import ObjectClient
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.programs import program


@pytest.fixture(scope="session")
def helm_program() -> str:
    return str(program("helm"))


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    for name in ("helm", "etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        program(name)
    with ControlPlane(tmp_path_factory.mktemp("kubernetes")) as running:
        for zone in "abc":
            running.add_node(f"node-{zone}", zone=f"zone-{zone}")
        yield running


@pytest.fixture(scope="session")
def api(kubernetes: ControlPlane) -> Iterator[ObjectClient]:
    """Objects of that API server, through the official Python client."""
    with ObjectClient(kubernetes.kubeconfig) as client:
        yield client


@pytest.fixture
def namespace(api: ObjectClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, which accepts only pods of the restricted profile."""
    name = request.node.name.replace("_", "-").replace("[", "-").rstrip("]").lower()[:60].strip("-")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    make_namespace(api, name, labels)
    yield name
    api.delete("Namespace", name)


def make_namespace(api: ObjectClient, name: str, labels: Mapping[str, str] | None = None) -> None:
    metadata = {"name": name, "labels": dict(labels or {})}
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
