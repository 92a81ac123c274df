"""The pytest side of the test kit: what this machine lacks skips a test instead of failing it.

The kit itself raises typed errors and does not import pytest. This plugin turns them into skips;
the root conftest.py loads it. With ODRADEK_REQUIRE_TOOLS set (CI) a missing program is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from odradek_testkit.engines import ToolsMissingError
from odradek_testkit.kubernetes.programs import ProgramsMissingError
from odradek_testkit.small_disk import MountRefusedError


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
def pytest_runtest_setup() -> Generator[None]:
    with _skipping():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    with _skipping():
        yield
