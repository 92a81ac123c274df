"""odradek rebalance --mode remove-disks: a broker with two log directories."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cli_tests.conftest import Odradek
from odradek_operator.admin.throttles import log_sizes, move_directories
from odradek_protocol.client import KafkaClient
from odradek_protocol.ids import TopicPartition
from odradek_testkit.engines import RunningBroker
from odradek_testkit.waiting import wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    base = tmp_path_factory.mktemp("disks")
    settings = {
        "log.dirs": f"{base / 'one'},{base / 'two'}",
        "replica.alter.log.dirs.io.max.bytes.per.second": "20000",
    }
    with RunningBroker(settings, directory=base) as running:
        yield running


def test_a_directory_is_emptied(
    odradek: Odradek, as_json: Callable[..., Any], tmp_path: Path
) -> None:
    odradek("topics", "create", "orders", "-p", "6")

    def of_orders() -> dict[str, int]:
        found = as_json("cluster", "log-dirs", "-t", "orders")
        return {d["path"]: len(d["replicas"]) for d in found}

    # Sorted by what they hold, so that the test does not depend on where the broker placed them.
    keep, leave = sorted(of_orders(), key=of_orders().__getitem__)
    assert of_orders()[leave]
    (node,) = {d["broker"] for d in as_json("cluster", "log-dirs")}
    file = str(tmp_path / "proposal.json")
    words = ("--mode", "remove-disks", "--disk", f"{node}:{leave}", "-o", file)
    shown = odradek("rebalance", "propose", "--sample", "0", *words).stdout
    assert "the directory is removed" in shown
    odradek("rebalance", "apply", file, "--yes")
    wait_until(
        lambda: of_orders() == {keep: 6, leave: 0}, "all replicas in the other directory", 60
    )
    odradek("rebalance", "cancel", file)  # nothing is being copied: what has moved stays
    assert of_orders() == {keep: 6, leave: 0}
    odradek("rebalance", "cancel", file, "--back")
    assert of_orders()[leave] == len(json.loads(Path(file).read_text())["directory_moves"]) > 0


def test_a_copy_that_has_begun_is_cancelled(
    odradek: Odradek, as_json: Callable[..., Any], tmp_path: Path, broker: RunningBroker
) -> None:
    """2 MB at 20 kB/s would take 100 s."""
    odradek("topics", "create", "large", "-p", "1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for _ in range(20):
        producer.produce("large", os.urandom(100_000))
    assert producer.flush(60) == 0
    place = TopicPartition("large", 0)
    with KafkaClient(broker.bootstrap) as client:

        def directories() -> tuple[list[str], list[str]]:
            """Where the replica is, and where it is being copied to."""
            ((_, dirs),) = log_sizes(client).brokers.items()
            here = [d.path for d in dirs if place in d.replica_bytes]
            return here, [d.path for d in dirs if place in d.future_bytes]

        (leave,), _ = directories()
        (node,) = log_sizes(client).brokers
        file = tmp_path / "proposal.json"
        odradek("rebalance", "propose", "--sample", "0", "--exclude-topics", "orders", "--mode",
                "remove-disks", "--disk", f"{node}:{leave}", "-o", str(file))  # fmt: skip
        (change,) = json.loads(file.read_text())["directory_moves"]
        assert move_directories(client, {node: {place: change["after"]}}) == {}
        wait_until(lambda: bool(directories()[1]), "the copy has begun")
        assert as_json("rebalance", "status", str(file))["directories"].endswith("1 moving.")
        odradek("rebalance", "cancel", str(file))
        assert directories() == ([leave], [])
