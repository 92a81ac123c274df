"""The pytest plugin (entry point `odradek`): the fixture `kafka`, the marker `kafka`, diffs.

The fixture gives a test an empty Kafka. One broker serves the whole session (of each xdist worker):
topics and groups are deleted after each test, and a Kafka to which a test did more (kill, advance,
fill_disk …) is replaced. A marker asks for another kind:

    @pytest.mark.kafka(brokers=3, racks=["a", "b", "c"], config={...}, engine="apache")

Its arguments are those of `odradek.testing.Kafka`; tests with equal arguments that follow each
other share a cluster. In a session without tests that use the fixture nothing is imported or
started: the imports of odradek.testing, 0.2 s, are inside of the functions.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.testing import Kafka

LOG_CHARS_MAX = 4_000  # of each broker, in the report of a failed test


class Pool:
    """The session's Kafkas: the one without a marker, and the last one with a marker."""

    def __init__(self) -> None:
        self._plain: Kafka | None = None
        self._marked: tuple[str, Kafka] | None = None

    def take(self, arguments: dict[str, Any]) -> Kafka:
        from odradek.testing import Kafka

        if not arguments:
            if self._plain is None:
                self._plain = Kafka().start()
            return self._plain
        wanted = repr(sorted(arguments.items()))
        if self._marked is not None and self._marked[0] != wanted:
            self._marked[1].close()
            self._marked = None
        if self._marked is None:
            self._marked = wanted, Kafka(**arguments).start()
        return self._marked[1]

    def give_back(self, kafka: Kafka) -> None:
        """Empties it for the next test, or ends it. Raises if a broker died by itself."""
        if kafka.reset():
            return
        if self._plain is kafka:
            self._plain = None
        else:
            self._marked = None
        if died := kafka.close():
            raise AssertionError(died)

    def close(self) -> None:
        for kafka in (self._plain, self._marked[1] if self._marked else None):
            if kafka is not None:
                kafka.close()
        self._plain = self._marked = None
        if launching := sys.modules.get("odradek_testkit.launching"):
            launching.close_launcher()


_pool = pytest.StashKey[Pool]()
_used: pytest.StashKey[Kafka] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka(brokers=1, racks=(), config=None, engine='odradek', tls=False, sasl=None, "
        "acls=False): the Kafka that the fixture `kafka` gives to this test (odradek.testing)",
    )
    config.stash[_pool] = Pool()


def pytest_unconfigure(config: pytest.Config) -> None:
    if (pool := config.stash.get(_pool, None)) is not None:
        pool.close()


def pytest_itemcollected(item: pytest.Item) -> None:
    """The launcher imports the broker while the rest of the tests is collected."""
    if "kafka" in getattr(item, "fixturenames", ()) and not _only_collects(item.config):
        from odradek_testkit.launching import launcher

        launcher()


def _only_collects(config: pytest.Config) -> bool:
    """With --collect-only, and in the controller of xdist, no test runs here."""
    distributes = getattr(config.option, "dist", "no") != "no"
    return bool(config.option.collectonly) or (distributes and not hasattr(config, "workerinput"))


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Generator[Kafka]:
    """An empty Kafka: `kafka.bootstrap`, `kafka.topics`, `kafka.produce`, `kafka.read` …"""
    marker = request.node.get_closest_marker("kafka")
    if marker is not None and marker.args:
        raise pytest.UsageError(f"{request.node.nodeid}: kafka(...) takes keyword arguments only")
    pool = request.config.stash[_pool]
    taken = pool.take(dict(marker.kwargs) if marker is not None else {})
    request.node.stash[_used] = taken
    yield taken
    pool.give_back(taken)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    used = item.stash.get(_used, None)
    if report.failed and used is not None:
        for broker_id, log in used.logs().items():
            report.sections.append((f"log of Kafka broker {broker_id}", log[-LOG_CHARS_MAX:]))
    return report


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """`assert kafka.read("orders") == [...]` shows the missing and the unexpected records."""
    if "odradek.testing" not in sys.modules:
        return None
    from odradek.testing import Difference, Record, Records

    found, expected = (left, right) if isinstance(left, Records) else (right, left)
    if op != "==" or not isinstance(found, Records) or not isinstance(expected, list):
        return None
    if not all(one is None or isinstance(one, (Record, str, bytes)) for one in expected):
        return None
    return ["the records differ", *Difference(expected, found).lines()]
