"""Fixtures that give a test a real broker process, and put its log into the report of a failure.

    def test_x(broker, topic): ...            the broker that tests share, and a free topic name
    def test_y(start_broker): ...             start_broker({"log.segment.bytes": "65536"}) -> Server

`broker` is one server with default settings for all tests of a process, so tests use topics and
groups of their own; one that stops its server, counts everything in it or changes its defaults
starts its own. With ODRADEK_TEST_ENGINE=apache the same tests run against Apache Kafka.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import (
    Callable,
    Generator,
    Iterator,
    Mapping,
)
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek_testkit import engines as harness

LOG_TAIL_CHARS = 8_000

servers_of_test = pytest.StashKey[list[harness.Server]]()
StartBroker = Callable[..., harness.Server]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Java and Maven (or kcat) a developer's run skips what needs them; CI may not."""
    if os.environ.get("ODRADEK_REQUIRE_TOOLS"):
        return
    if not os.environ.get("ODRADEK_KAFKA_JARS") and not (
        shutil.which("java") and shutil.which("mvn")
    ):
        skip = pytest.mark.skip(reason="needs `apt-get install -y openjdk-17-jre-headless maven`")
        for item in items:
            if item.get_closest_marker("java"):
                item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report: Any = yield
    if report.failed:
        for server in item.stash.get(servers_of_test, []):
            report.sections.append((f"log of {server.name}", server.log()[-LOG_TAIL_CHARS:]))
    return report


@pytest.fixture
def start_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers with settings of the test's choice; all are stopped when it ends."""
    with ExitStack() as stack:

        def start(overrides: Mapping[str, str] | None = None) -> harness.Server:
            servers = request.node.stash.setdefault(servers_of_test, [])
            server = harness.engine()(overrides, directory=tmp_path / f"server-{len(servers)}")
            servers.append(server)
            return stack.enter_context(server)

        yield start


@pytest.fixture(scope="session")
def _shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Server]:
    with harness.engine()(directory=tmp_path_factory.mktemp("shared")) as server:
        yield server


@pytest.fixture
def broker(request: pytest.FixtureRequest, _shared_server: harness.Server) -> harness.Server:
    """A running broker with default settings, shared with other tests."""
    request.node.stash[servers_of_test] = [_shared_server]
    return _shared_server


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
