"""A real API server, controllers and three nodes in three zones; one per test process."""

from collections.abc import Iterator

import pytest

from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.programs import ProgramsMissingError
from odradek_testkit.kubernetes.world import World, three_zones


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    try:
        with ControlPlane(tmp_path_factory.mktemp("kubernetes")) as running:
            three_zones(running)
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


@pytest.fixture
def world(kubernetes: ControlPlane, namespace: str) -> Iterator[World]:
    """A namespace with simulated brokers, and the operator's passes over it."""
    made = World(kubernetes, namespace)
    yield made
    made.close()
