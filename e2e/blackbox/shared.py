"""Reuses the tests of broker_tests/clients that need only an address.

    globals().update(shared(test_groups, leave_out={"test_x": "reads the server's files"}))

A test that uses `start_broker` (settings of its own) or `tmp_path` is left out automatically.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from _pytest.fixtures import FixtureFunctionDefinition

OWN_SERVER = frozenset(("start_broker", "tmp_path"))
ADDRESS = frozenset(("broker", "server", "topic"))  # this suite's own, in conftest.py


def shared(module: ModuleType, leave_out: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The module's tests and fixtures by name; `leave_out` names excluded tests and the reason."""
    found: dict[str, Any] = {"pytestmark": getattr(module, "pytestmark", [])}
    left_out = dict(leave_out or {})
    for name, value in vars(module).items():
        if isinstance(value, FixtureFunctionDefinition):
            if name not in ADDRESS:
                found[name] = value
        elif name.startswith("test_") and inspect.isfunction(value):
            wanted = set(inspect.signature(value).parameters)
            if left_out.pop(name, None) is None and not wanted & OWN_SERVER:
                found[name] = value
    assert not left_out, f"{module.__name__} has no {sorted(left_out)}"
    return found
