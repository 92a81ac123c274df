"""odradek cluster, partitions and quorum: against one broker, and against three in three racks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from cli_tests.conftest import Odradek
from odradek_cli.errors import CliError
from odradek_cli.partitions import Target, spread
from odradek_testkit.cluster import Cluster


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The fixtures of conftest.py use `broker.bootstrap`, which is that of a cluster here."""
    with Cluster(3, directory=tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster_topic(broker: Cluster, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).removeprefix("test_")
    broker.create_topic(name, partitions=3)
    return name


def test_targets() -> None:
    assert Target.parse("orders") == Target("orders")
    assert Target.parse("orders:4") == Target("orders", 4)
    assert Target.parse("orders:0=2,3,1") == Target("orders", 0, (2, 3, 1))
    for wrong in ("orders:x", "orders:0=a", "orders:0=1,,2"):
        with pytest.raises(CliError, match="TOPIC:PARTITION"):
            Target.parse(wrong)


def test_spread_keeps_replicas_in_different_racks() -> None:
    current = {("t", p): [1, 2] for p in range(6)}
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = spread(current, racks, None, Random(7))
    assert set(plan) == set(current)
    assert all({racks[r] for r in replicas} == {"a", "b"} for replicas in plan.values())
    with pytest.raises(CliError, match="topic t"):
        spread(current, racks, 5, Random(7))


def test_describe(
    odradek: Odradek, as_json: Callable[..., Any], broker: Cluster, cluster_topic: str
) -> None:
    described = as_json("cluster", "describe")
    assert [(b["id"], b["rack"]) for b in described["brokers"]] == [(1, "a"), (2, "b"), (3, "c")]
    assert described["controller"] in (1, 2, 3)
    assert described["under_replicated"] == described["offline"] == []
    assert described["preferred_leader_share"] == 1.0
    assert {b["leaders"] for b in described["brokers"]} == {described["partitions"] // 3}
    text = odradek("cluster", "describe").stdout
    assert f"controller {described['controller']}" in text
    assert "preferred leaders 100%" in text


def test_quorum(odradek: Odradek, as_json: Callable[..., Any], broker: Cluster) -> None:
    described = as_json("quorum")
    assert [voter["id"] for voter in described["voters"]] == [1, 2, 3]
    assert described["leader"] == broker.controller()
    assert described["high_watermark"] > 0
    assert "leader" in odradek("quorum").stdout


def test_reassign(
    odradek: Odradek, as_json: Callable[..., Any], broker: Cluster, cluster_topic: str
) -> None:
    topic = cluster_topic
    odradek("partitions", "reassign", f"{topic}:0=2,1", "--wait")
    assert broker.partitions(topic)[0].replica_nodes == [2, 1]
    plan = as_json("partitions", "reassign", topic, "--brokers", "2,3", "-r", "2", "--dry-run")
    assert broker.partitions(topic)[0].replica_nodes == [2, 1]
    assert {tuple(sorted(move["to"])) for move in plan} == {(2, 3)}
    moved = as_json("partitions", "reassign", topic, "--brokers", "2,3", "-r", "2", "--wait")
    for move in moved:
        assert broker.partitions(topic)[move["partition"]].replica_nodes == move["to"]
    assert as_json("partitions", "reassign") == []
    assert odradek("partitions", "reassign").stdout == "Nothing is moving.\n"
    odradek("partitions", "reassign", topic, "--cancel")


def test_elect(
    odradek: Odradek, as_json: Callable[..., Any], broker: Cluster, cluster_topic: str
) -> None:
    first = broker.partitions(cluster_topic)[0].replica_nodes
    turned = ",".join(map(str, reversed(first)))
    odradek("partitions", "reassign", f"{cluster_topic}:0={turned}", "--wait")
    elected = as_json("partitions", "elect", f"{cluster_topic}:0")
    assert elected["elected"] == [{"topic": cluster_topic, "partition": 0}]
    broker.wait_until(lambda: broker.leader(cluster_topic, 0) == first[-1])
    said = odradek("partitions", "elect", cluster_topic).stdout
    assert said == "Every partition is led by its preferred replica.\n"


def test_errors_name_the_object(odradek: Odradek, cluster_topic: str) -> None:
    cases = [
        (("partitions", "reassign", "nope:0=1"), "topic nope"),
        (("partitions", "reassign", f"{cluster_topic}:9=1"), "no partition 9"),
        (("partitions", "reassign", f"{cluster_topic}:0=1,9"), "live broker 9; live are: 1, 2, 3"),
        (("partitions", "reassign", cluster_topic, "--brokers", "1,9"), "no broker 9"),
        (("partitions", "reassign", cluster_topic, "--brokers", "1,2"), "--brokers names 2"),
        (("quorum", "--bootstrap", "127.0.0.1:1"), "no broker answers there"),
    ]
    assert "--brokers" in odradek("partitions", "reassign", cluster_topic, code=2).stderr
    for args, named in cases:
        refused = odradek(*args, code=1)
        assert refused.stderr.startswith("odradek: "), refused.stderr
        assert refused.stderr.count("\n") == 1
        assert named in refused.stderr


def test_log_dirs(
    odradek: Odradek, as_json: Callable[..., Any], broker: Cluster, cluster_topic: str
) -> None:
    found = as_json("cluster", "log-dirs")
    assert [d["broker"] for d in found] == [1, 2, 3]
    assert all(d["usable_bytes"] > 0 and not d["offline"] for d in found)
    (one,) = as_json("cluster", "log-dirs", "--broker", "2", "--topic", cluster_topic)
    assert [r["partition"] for r in one["replicas"]] == [0, 1, 2]
    assert "in use by replicas" in odradek("cluster", "log-dirs").stdout
    assert f"{cluster_topic}-0" in odradek("cluster", "log-dirs", "-t", cluster_topic).stdout
    unknown = odradek("cluster", "log-dirs", "--broker", "9", code=1).stderr
    assert "--broker 9: there is no such live broker; live are: 1, 2, 3" in unknown
    assert "--topic nope" in odradek("cluster", "log-dirs", "-t", "nope", code=1).stderr


def test_health_says_how_bad_it_is_with_its_exit_code(
    odradek: Odradek, as_json: Callable[..., Any], broker: Cluster, cluster_topic: str
) -> None:
    """Last in this file: it stops brokers."""
    odradek("topics", "create", "strict", "-p", "1", "-r", "3", "-C", "min.insync.replicas=3")
    assert odradek("cluster", "health").stdout.startswith("healthy: 3 brokers, ")
    assert as_json("cluster", "health")["state"] == "healthy"
    assert "no broker answers" in odradek("cluster", "health", "-b", "127.0.0.1:1", code=1).stderr
    victim = next(n for n in (1, 2, 3) if n != broker.controller())
    broker.stop(victim)
    unavailable = odradek("cluster", "health", "--allow-degraded", code=4)
    assert unavailable.stderr == "odradek: the cluster is unavailable\n"
    assert "fewer replicas in sync than min.insync.replicas: strict-0" in unavailable.stdout
    assert f"brokers that are registered and do not run: {victim}" in unavailable.stdout
    odradek("configs", "alter", "topic", "strict", "--set", "min.insync.replicas=2")
    degraded = odradek("cluster", "health", "--json", code=3)
    found = json.loads(degraded.stdout)
    assert found["state"] == "degraded"
    assert f"{cluster_topic}-0" in found["under_replicated"]
    odradek("cluster", "health", "--allow-degraded")
