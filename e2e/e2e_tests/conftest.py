"""helm, and a real API server to which the chart is installed; one per test process."""

import os
from collections.abc import Iterator

import pytest

from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.programs import ProgramsMissingError, program


@pytest.fixture(scope="session")
def helm_program() -> str:
    return _or_skip("helm")


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    for name in ("helm", "etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        _or_skip(name)
    with ControlPlane(tmp_path_factory.mktemp("kubernetes")) as running:
        for zone in "abc":
            running.add_node(f"node-{zone}", zone=f"zone-{zone}")
        yield running


@pytest.fixture
def namespace(kubernetes: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, which takes only pods of the restricted profile."""
    name = request.node.name.replace("_", "-").replace("[", "-").rstrip("]").lower()[:60].strip("-")
    kubernetes.kubectl("create", "namespace", name)
    kubernetes.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    kubernetes.kubectl("delete", "namespace", name, "--wait=false")


def _or_skip(name: str) -> str:
    try:
        return str(program(name))
    except ProgramsMissingError as error:
        if os.environ.get("ODRADEK_REQUIRE_TOOLS"):
            raise
        pytest.skip(str(error))
