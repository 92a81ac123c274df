"""Clusters of three brokers for the tests of security: made, started together, ended in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker_tests.conftest import servers_of_test
from odradek_testkit.cluster import CLUSTER_ID
from odradek_testkit.engines import RunningBroker
from odradek_testkit.ports import free_ports


def three_brokers(
    directory: Path, protocol: str, settings: Mapping[str, str]
) -> list[RunningBroker]:
    """Voters whose only listener has this protocol, for clients, replication and the quorum."""
    ports = free_ports(3)
    voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(ports, 1))
    return [
        RunningBroker(
            {
                "node.id": str(node_id),
                "listeners": f"{protocol}://127.0.0.1:{port}",
                "security.inter.broker.protocol": protocol,
                "controller.quorum.voters": voters,
                "odradek.cluster.id": CLUSTER_ID,
                **settings,
            },
            directory=directory / f"broker-{node_id}",
        )
        for node_id, port in enumerate(ports, 1)
    ]


def start(nodes: Sequence[RunningBroker]) -> None:
    """At the same time, because a new quorum waits for all of its voters."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda node: node.start(60.0), nodes))


@contextmanager
def running(request: pytest.FixtureRequest, nodes: Sequence[RunningBroker]) -> Iterator[None]:
    """For a fixture. If its test fails, the report has the brokers' logs."""
    request.node.stash[servers_of_test] = list(nodes)
    start(nodes)
    yield
    for node in nodes:
        assert node.stop() == 0, node.log()
