"""The address, from ODRADEK_BLACKBOX_BOOTSTRAP, under the names that the shared tests use.

ODRADEK_BLACKBOX_CLIENT_CONFIG names a file with the TLS and SASL settings of all clients.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.register_assert_rewrite("broker_tests.clients")


@dataclass(frozen=True)
class Address:
    """Everything that a test may know; tests that read files or stop the server are not shared."""

    bootstrap: str
    client_config: Path | None = None

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])


@pytest.fixture(scope="session")
def broker() -> Address:
    bootstrap = os.environ.get("ODRADEK_BLACKBOX_BOOTSTRAP")
    if not bootstrap:
        pytest.exit("ODRADEK_BLACKBOX_BOOTSTRAP is not set: run `make blackbox`", returncode=2)
    config = os.environ.get("ODRADEK_BLACKBOX_CLIENT_CONFIG")
    return Address(bootstrap, Path(config) if config else None)


@pytest.fixture(scope="session")
def server(broker: Address) -> Address:
    return broker


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"
