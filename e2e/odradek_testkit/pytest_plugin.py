"""The pytest side of the test kit: what this machine lacks skips a test instead of failing it.

The kit itself raises typed errors and does not import pytest. This plugin turns them into skips;
the root conftest.py loads it. With ODRADEK_REQUIRE_TOOLS set (CI) a missing program is a failure.
With ODRADEK_TEST_DEADLINE (unix seconds) no long test begins later: CI has a time limit.
It also marks the tests that need a Kubernetes, runs one tier (tiers.py) with `--tier=NAME`, and
begins with the slowest files when `--dist loadfile` spreads them over processes (slowest_first.py).
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from odradek_testkit.engines import ToolsMissingError
from odradek_testkit.kubernetes.programs import ProgramsMissingError
from odradek_testkit.slowest_first import CACHE_KEY, Seconds, SlowestFirst
from odradek_testkit.small_disk import MountRefusedError
from odradek_testkit.tiers import KUBERNETES_FIXTURES, TIERS, tier_of


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, help="run the tests of this tier only")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules stay to the end: looking for garbage among them takes a sixth of the collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # after those that add markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if KUBERNETES_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kubernetes)
    wanted = config.getoption("--tier")
    if wanted is None:
        return
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        markers = {mark.name for mark in item.iter_markers()}
        (chosen if tier_of(markers) == wanted else others).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)


@pytest.hookimpl(optionalhook=True)  # of xdist, in the process that distributes the tests
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SlowestFirst | None:
    if config.getvalue("dist") != "loadfile":
        return None
    cache = getattr(config, "cache", None)  # not with -p no:cacheprovider
    before = cache.get(CACHE_KEY, {}) if cache else {}
    config.pluginmanager.register(Seconds(before), CACHE_KEY)
    return SlowestFirst(config, log, before)


def pytest_sessionfinish(session: pytest.Session) -> None:
    measured = session.config.pluginmanager.get_plugin(CACHE_KEY)
    cache = getattr(session.config, "cache", None)
    if isinstance(measured, Seconds) and cache:
        cache.set(CACHE_KEY, measured.all())


# Drivers of pipelines live for seconds: the cheap compiler saves half of their CPU.
SPARK_JVM = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}


# Spark's py4j closes its sockets when they are collected, which may be in a later test.
PY4J_IGNORED = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest reads the filters of warnings
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if "py4j" in sys.modules or item.get_closest_marker("spark") is not None:
        for ignored in PY4J_IGNORED:
            item.add_marker(pytest.mark.filterwarnings(ignored))
    if item.get_closest_marker("spark") is None or SPARK_JVM.keys() & os.environ.keys():
        return (yield)
    os.environ.update(SPARK_JVM)
    try:
        return (yield)
    finally:
        for name in SPARK_JVM:
            del os.environ[name]


@contextmanager
def _skipping() -> Generator[None]:
    try:
        yield
    except (ToolsMissingError, ProgramsMissingError) as error:
        if os.environ.get("ODRADEK_REQUIRE_TOOLS"):
            raise
        pytest.skip(str(error))
    except MountRefusedError as error:  # a right, not a program: CI may lack it too
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    deadline = float(os.environ.get("ODRADEK_TEST_DEADLINE") or "inf")
    if time.time() > deadline and item.get_closest_marker("long"):
        pytest.skip("no time is left for it in this run; make test-long runs it")
    with _skipping():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    with _skipping():
        yield
