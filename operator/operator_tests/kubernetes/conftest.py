"""A real API server, controllers and three nodes in three zones; one per test process."""

from collections.abc import Iterator

import pytest

from odradek_api.crd import CRDS
from odradek_api.kinds import KINDS
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.programs import ProgramsMissingError


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    try:
        with ControlPlane(tmp_path_factory.mktemp("kubernetes")) as running:
            for zone in "abc":
                running.add_node(f"node-{zone}", zone=f"zone-{zone}")
                running.kubectl("label", "node", f"node-{zone}", "world=yes")
            running.kubectl("apply", "-f", str(CRDS))
            running.kubectl("wait", "--for=condition=Established", "crd", "--all")
            for kind in KINDS.values():  # kubectl is patient while a new kind's storage begins
                running.kubectl("get", kind.plural, "--all-namespaces")
            yield running
    except ProgramsMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def namespace(kubernetes: ControlPlane, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name: str = request.node.name
    name = name.replace("_", "-").replace("[", "-").rstrip("]").lower()[:60].strip("-")
    kubernetes.kubectl("create", "namespace", name)
    return name
