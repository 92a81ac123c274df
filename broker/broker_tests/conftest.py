"""Fixtures that give a test a real broker process, and put its log into the report of a failure.

    def test_x(broker, topic): ...            a broker of this test's own, and a free topic name
    def test_y(start_broker): ...             start_broker({"log.segment.bytes": "65536"}) -> Server

With ODRADEK_TEST_ENGINE=apache the same tests run against Apache Kafka: `broker` is then one
server for the whole session (it takes 8 s to start), so tests use topic names of their own.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
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
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
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
def _shared_apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Server]:
    directory = tmp_path_factory.mktemp("apache")
    with harness.RunningApacheKafka(directory=directory) as server:
        yield server


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[harness.Server]:
    """A running broker with default settings."""
    if harness.on_apache():
        server = request.getfixturevalue("_shared_apache")
        request.node.stash[servers_of_test] = [server]
        yield server
    else:
        yield request.getfixturevalue("start_broker")()


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
