"""The cluster of `make kind-up`, the operator installed by Helm, and a namespace for each story.

A story that fails leaves build/e2e/<its name>/: events, descriptions, logs, objects.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from e2e_tests.kind.evidence import collect
from e2e_tests.kind.story import Story, end_namespace, namespace
from odradek_e2e import release
from odradek_e2e.chart import ROOT
from odradek_e2e.ci import DEADLINE
from odradek_e2e.kind import cluster as kind
from odradek_e2e.kind import engine as engines
from odradek_e2e.kind.places import kubeconfig
from odradek_images.table import IMAGES
from odradek_testkit.kubernetes.client import ObjectClient

SYSTEM = "odradek-system"
RELEASE = "odradek"
ORDER = (
    "test_container",
    "test_first_steps",
    "test_security",
    "test_rolls",
    "test_apache",
    "test_faults",
    "test_disk",
    "test_scale_and_storage",
    "test_rebalance",
    "test_spark",
    "test_kubeflow",
)
failed_stories = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kind)
            item.add_marker(pytest.mark.timeout(1800))
    items.sort(key=lambda item: ORDER.index(item.path.stem) if item.path.stem in ORDER else -1)


@pytest.fixture(autouse=True)
def in_time() -> None:
    """Skips a story that would begin after the time limit of CI."""
    if time.time() > float(os.environ.get(DEADLINE) or "inf"):
        pytest.skip("no time is left for it in this run; make e2e runs it")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[failed_stories] = True
    return report


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectClient]:
    """A client of the kind cluster, which `make e2e` has started."""
    try:
        client = ObjectClient(kubeconfig())
    except (ConfigException, ApiException, HTTPError, OSError) as error:
        pytest.fail(f"no kind cluster answers (make kind-up starts one): {error}")
    with client:
        yield client


@pytest.fixture(scope="session")
def operator(objects: ObjectClient) -> str:
    """The namespace of the operator: two replicas that watch all namespaces."""
    objects.apply(namespace(SYSTEM))
    install_operator("native")
    return SYSTEM


def install_operator(spark_mode: str) -> None:
    release.settle(RELEASE, SYSTEM, "--set=watch.scope=Cluster", f"--set=spark.mode={spark_mode}",
                   f"--set-string=podAnnotations.image={image_key()}",
                   "--wait", "--timeout=5m", kubeconfig=kubeconfig())  # fmt: skip


def image_key() -> str:
    """Changes with the image, so that another image under the same tag is rolled out."""
    image = IMAGES["operator"]
    return kind.loaded(engines.find(), f"{image.name}-{image.tag()}")


@pytest.fixture
def story(
    objects: ObjectClient, operator: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Story]:
    """A namespace that is deleted at the end of the story."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = name[:40].strip("-")
    objects.apply(namespace(name))
    yield Story(objects, name, tmp_path)
    if request.node.stash.get(failed_stories, False):
        folder = collect(objects, name, operator, ROOT / "build" / "e2e" / name)
        shutil.copytree(tmp_path, folder, dirs_exist_ok=True)
        print(f"\nlogs and objects of {name}: {folder.relative_to(ROOT)}")
    end_namespace(objects, name)
