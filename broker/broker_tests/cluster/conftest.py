"""Fixtures that give a test a cluster of brokers; their logs are in the report of a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker_tests.conftest import servers_of_test
from odradek_testkit.cluster import Cluster

StartCluster = Callable[..., Cluster]


@pytest.fixture
def start_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartCluster]:
    """start_cluster(5, {"replica.lag.time.max.ms": "2000"}) -> Cluster, ended with the test."""
    with ExitStack() as stack:

        def start(size: int = 3, settings: Mapping[str, str] | None = None) -> Cluster:
            cluster = Cluster(size, settings=settings, directory=tmp_path / "cluster")
            servers = request.node.stash.setdefault(servers_of_test, [])
            servers.extend(cluster.nodes.values())
            return stack.enter_context(cluster)

        yield start


@pytest.fixture
def cluster(start_cluster: StartCluster) -> Cluster:
    """Three brokers in three racks, with default settings."""
    return start_cluster()
