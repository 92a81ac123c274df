"""odradek rebalance, as a user types it: propose, apply, status, cancel on four real brokers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from cli_tests.conftest import Odradek
from odradek_testkit.cluster import Cluster
from odradek_testkit.ports import free_ports
from odradek_testkit.waiting import wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(4, directory=tmp_path_factory.mktemp("cluster"))
    for node, port in zip(cluster.nodes.values(), free_ports(4), strict=True):
        node.settings["odradek.admin.listener"] = f"127.0.0.1:{port}"
    with cluster:
        new = NewTopic("orders", 8, replica_assignment=[[1, 2] for _ in range(8)])
        admin = cluster.admin()  # kept: its requests end with it
        admin.create_topics([new])["orders"].result(60)
        cluster.wait_in_sync("orders")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        for number in range(80):
            producer.produce("orders", bytes(50_000), partition=number % 8)
        assert producer.flush(60) == 0
        cluster.wait_in_sync("orders")
        yield cluster


def test_from_the_proposal_to_the_way_back(
    odradek: Odradek, as_json: Callable[..., Any], broker: Cluster, tmp_path: Path
) -> None:
    file = str(tmp_path / "proposal.json")
    shown = odradek("rebalance", "propose", "--sample", "0", "-o", file).stdout
    assert "Disk use" in shown
    assert "of its share" in shown
    assert f"odradek rebalance apply {file}" in shown
    proposal = json.loads(Path(file).read_text())
    assert proposal["moves"]
    assert as_json("rebalance", "status", file)["pending"] == len(proposal["moves"])

    done = odradek("rebalance", "apply", file, "--yes").stdout
    assert done == f"{len(proposal['moves'])} partitions are where the proposal puts them.\n"
    placed = broker.partitions("orders")
    for move in proposal["moves"]:
        assert placed[move["partition"]].replica_nodes == move["after"]
        assert placed[move["partition"]].leader_id == move["after"][0]
    assert {b for p in placed.values() for b in p.replica_nodes} == {1, 2, 3, 4}
    assert as_json("rebalance", "status", file)["finished"]
    again = odradek("rebalance", "propose", "--sample", "0", "--goals", "disk,leaders").stdout
    assert "The cluster is balanced: nothing to move." in again

    odradek("rebalance", "cancel", file, "--back")
    assert {tuple(p.replica_nodes) for p in broker.partitions("orders").values()} == {(1, 2)}


def test_loads_that_the_brokers_measured(
    odradek: Odradek, as_json: Callable[..., Any], broker: Cluster
) -> None:
    """Measured since their start, so the records of before count; consumers have read nothing."""
    ports = ",".join(f"{n}={node.admin}" for n, node in broker.nodes.items())
    for metrics in (["--metrics", ports], []):  # given, and found in the settings of the brokers
        with_loads = as_json("rebalance", "propose", *metrics, "--sample", "0")
        goals = {goal["name"]: goal for goal in with_loads["goals"]}
        assert goals["bytes-in"]["before"] > 0.1
        assert goals["bytes-in"]["after"] < goals["bytes-in"]["before"]
    without = as_json("rebalance", "propose", "--metrics", "none", "--sample", "0")
    assert {g["name"]: g["before"] for g in without["goals"]}["bytes-in"] == 0.0
    ports = ports.replace("1=", "9=", 1)
    refused = odradek("rebalance", "propose", "--metrics", "here", code=2)
    assert "expected a port, or ID=HOST:PORT" in refused.stderr
    refused = odradek("rebalance", "propose", "--metrics", ports, "--window", "week", code=2)
    assert "the windows are minute, hour, day" in refused.stderr


def test_the_first_proposal_after_a_start(as_json: Callable[..., Any], broker: Cluster) -> None:
    """All brokers are stopped and started. The time is that of the command, with its own start; it
    waits for nobody's metric windows."""
    broker.stop()
    broker.start()
    began = time.monotonic()
    proposal = as_json("rebalance", "propose")
    print(f"\nthe first proposal came {time.monotonic() - began:.1f} s after the brokers' start")
    assert {b for move in proposal["moves"] for b in move["after"]} == {1, 2, 3, 4}
    assert {g["name"]: g["before"] for g in proposal["goals"]}["disk"] > 0.1


def test_capacity(odradek: Odradek, as_json: Callable[..., Any], broker: Cluster) -> None:
    found: dict[str, Any] = {}

    def every_broker_has_measured() -> bool:  # their loads count 2 s after their start
        found.update(as_json("capacity", "--times", "3"))
        return "cpu" in found["need"]["by"]

    wait_until(every_broker_has_measured, "the CPU of all brokers is known")
    assert [b["broker"] for b in found["brokers"]] == [1, 2, 3, 4]
    used = {b["broker"]: b["used_bytes"] for b in found["brokers"]}
    assert used[1] == used[2] > 4_000_000  # 80 records of 50 kB
    assert all(b["room_bytes"] > b["used_bytes"] for b in found["brokers"])
    racks = {r["rack"]: r for r in found["racks"]}  # brokers 1 and 4 in a
    assert {r: one["brokers"] for r, one in racks.items()} == {"a": 2, "b": 1, "c": 1}
    assert {r: one["offline"] for r, one in racks.items()} == {"a": 0, "b": 0, "c": 0}
    assert found["need"]["times"] == 3
    assert set(found["need"]["by"]) == {"disk", "network", "cpu"}
    shown = odradek("capacity", "--metrics", "none", "--sample", "0").stdout
    assert "For 2 times the load:" in shown
    assert "rack lost" in shown
    assert "have to be positive" in odradek("capacity", "--times", "0", code=2).stderr


def test_modes(odradek: Odradek, as_json: Callable[..., Any], broker: Cluster) -> None:
    drain = as_json("rebalance", "propose", "--sample", "0", "--mode", "remove-brokers",
                    "--brokers", "2")  # fmt: skip
    assert all(2 not in move["after"] for move in drain["moves"])
    assert len(drain["moves"]) == 8
    leaders = as_json("rebalance", "propose", "--sample", "0", "--mode", "leaders-only")
    assert leaders["bytes"] == 0
    assert all(sorted(m["before"]) == sorted(m["after"]) for m in leaders["moves"])
    kept = as_json("rebalance", "propose", "--sample", "0", "--exclude-topics", "orders")
    assert kept["moves"] == []
    # 16 replicas on two of the four brokers: at most five on one means that six have to go.
    few = as_json("rebalance", "propose", "--replicas-max", "5", "--goals", "disk", "--price", "99")
    goal = next(g for g in few["goals"] if g["name"] == "replica-capacity")
    assert (goal["before"], goal["after"]) == (2, 0)
    held = Counter(b for move in few["moves"] for b in move["after"])
    assert max(held.values()) <= 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mode", "fast"], "mode 'fast' is unknown; the modes are full"),
        (["--goals", "cpu"], "goal 'cpu' is unknown; the goals are disk"),
        (["--mode", "add-brokers"], "mode add-brokers needs the ids of brokers"),
        (["--mode", "add-brokers", "--brokers", "9"], "the cluster has no broker 9"),
        (["--brokers", "x"], "--brokers x: expected ids of brokers, such as 3,4"),
        (["--mode", "remove-disks", "--disk", "1:/nowhere"], "has no log directory /nowhere"),
        (["--disk", "/data"], "--disk /data: expected BROKER:PATH"),
    ],
)
def test_wrong_usage(odradek: Odradek, words: list[str], message: str) -> None:
    assert message in odradek("rebalance", "propose", "--sample", "0", *words, code=2).stderr


def test_a_file_that_is_no_proposal(odradek: Odradek, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")
    assert "not a proposal" in odradek("rebalance", "apply", str(file), code=1).stderr
    assert "No such file" in odradek("rebalance", "status", str(tmp_path / "x"), code=1).stderr
