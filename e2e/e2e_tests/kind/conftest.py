"""The cluster of `make kind-up`, the operator on it by Helm, and a namespace for each story.

A story that fails leaves build/e2e/<its name>/: events, descriptions, logs, the resources.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e_tests.kind.evidence import collect
from e2e_tests.kind.story import KubectlError, Story, kubectl
from odradek_e2e import release
from odradek_e2e.chart import ROOT
from odradek_e2e.ci import DEADLINE
from odradek_e2e.kind import cluster as kind
from odradek_e2e.kind import engine as engines
from odradek_e2e.kind.places import kubeconfig
from odradek_images.table import IMAGES

SYSTEM = "odradek-system"
RELEASE = "odradek"
ORDER = (
    "test_first_steps",
    "test_rolls",
    "test_apache",
    "test_faults",
    "test_disk",
    "test_scale_and_storage",
    "test_spark",
)
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kind)
            item.add_marker(pytest.mark.timeout(1800))
    items.sort(key=lambda item: ORDER.index(item.path.stem) if item.path.stem in ORDER else -1)


@pytest.fixture(autouse=True)
def in_time() -> None:
    """CI has a limit; a story that would begin too late says so."""
    if time.time() > float(os.environ.get(DEADLINE) or "inf"):
        pytest.skip("no time is left for it in this run; make e2e runs it")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:
        item.failed = True  # type: ignore[attr-defined]
    return report


@pytest.fixture(scope="session")
def cluster() -> str:
    """The kind cluster answers; `make e2e` has made it."""
    try:
        return kubectl("version", "-o", "json", timeout_s=60)
    except (KubectlError, OSError) as error:
        pytest.fail(f"no kind cluster answers (make kind-up makes one): {error}")


@pytest.fixture(scope="session")
def operator(cluster: str) -> str:
    """The namespace of the operator: two replicas that watch all namespaces."""
    if not kubectl("get", "namespace", SYSTEM, "--ignore-not-found"):
        kubectl("create", "namespace", SYSTEM)
    kubectl("label", "--overwrite", "namespace", SYSTEM, RESTRICTED)
    release.settle(RELEASE, SYSTEM, "--set=watch.scope=Cluster", "--set=spark.mode=native",
                   f"--set-string=podAnnotations.image={image_key()}",
                   "--wait", "--timeout=5m", kubeconfig=kubeconfig())  # fmt: skip
    return SYSTEM


def image_key() -> str:
    """Another image under the same tag is another rollout."""
    image = IMAGES["operator"]
    return kind.loaded(engines.find(), f"{image.name}-{image.tag()}")


@pytest.fixture
def story(operator: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    """A namespace that takes only pods of the restricted profile; it ends with the story."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = name[:40].strip("-")
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, RESTRICTED)
    yield Story(name, tmp_path)
    if getattr(request.node, "failed", False):
        folder = collect(name, operator, ROOT / "build" / "e2e" / name)
        shutil.copytree(tmp_path, folder, dirs_exist_ok=True)
        print(f"\nwhat was found in {name}: {folder.relative_to(ROOT)}")
    # A namespace always ends, whatever the story did to it.
    kubectl("delete", "namespace", name, "--timeout=240s", timeout_s=300)
