"""Plan and roll of a KafkaCluster on Kubernetes: a real API server, the real operator's passes.

The console reads with the rights of the chart's service account; what a logged-in user may see of
it is up to Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
import yaml

from console_tests.conftest import Console, Visitor, add_user
from odradek_cli.errors import CliError, UsageError
from odradek_console.command import console as console_command
from odradek_protocol.acl_codes import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from odradek_protocol.client import KafkaClient
from odradek_protocol.client.admin.acls import add_acls
from odradek_testkit.engines import RunningBroker
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.world import World
from odradek_testkit.ports import free_port
from odradek_testkit.secured import secured_settings
from odradek_testkit.waiting import wait_until

PIPELINE = {
    "cluster": {"name": "main"},
    "sources": [{"name": "orders", "topics": ["orders"], "format": {"type": "raw"}}],
    "sink": {"topic": {"name": "copies"}},
}


@pytest.fixture
def world(kubernetes: ControlPlane, namespace: str) -> Iterator[World]:
    made = World(kubernetes, namespace)
    yield made
    made.close()


@pytest.fixture
def watching(
    world: World, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Visitor]:
    """A console of this KafkaCluster; its Kafka is another one, which does not matter here."""
    monkeypatch.setenv("KUBECONFIG", str(world.kubernetes.kubeconfig))
    with Console(broker.bootstrap, tmp_path, "--kubernetes", world.key) as console:
        yield Visitor(console).enter()


def plan_text(visitor: Visitor) -> str:
    """The page as a person reads it, without tags."""
    answer = visitor.get("/plan")
    assert answer.status == 200, answer.text
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


def until(visitor: Visitor, words: str) -> str:
    """Answers are kept for two seconds: the page is read again until it has the words."""
    pages: list[str] = []

    def shown() -> bool:
        pages[:] = [plan_text(visitor)]
        return words in pages[0]

    wait_until(shown, words)
    return pages[0]


def test_a_roll_is_shown_step_by_step_with_reasons(world: World, watching: Visitor) -> None:
    """
    1. There is no KafkaCluster; then one that the operator has not seen; then a settled one.
    2. Its spec changes: the page says that the status is older. The operator begins to restart.
    3. The page has the broker that restarts, why, since when, and the ones that are next.
    4. In the end it has the restarts, with what clients noticed.
    """
    assert "There is no KafkaCluster" in plan_text(watching)
    world.cluster(brokers=3)
    until(watching, "The operator has not reported anything yet")
    world.topic("orders", partitions=2)
    world.settle()
    page = until(watching, "3 of 3 brokers ready")
    assert "Nothing is to be done: the cluster is as its spec says." in page
    assert "no two replicas of a partition share a rack" in page

    world.cluster(brokers=3, config={"num.io.threads": 3})
    until(watching, "the spec has generation 2, the status is of 1")
    world.one_pass()
    page = until(watching, "num.io.threads changed")
    rolling = world.status()["rolling"]
    (first,) = rolling["brokers"]
    assert f"restarts broker {first}" in page
    since = rolling["since"].replace("T", " ").rstrip("Z")
    assert f"Since {since}, for" in page
    for other in {0, 1, 2} - {first}:
        assert f"restart broker {other}: num.io.threads changed" in page
    assert (
        f"Nodes that are still to be restarted: {', '.join(map(str, rolling['remaining']))}" in page
    )
    world.settle()
    page = until(watching, "Nothing is to be done")
    assert "Restarts the last 3" in page
    assert page.count("no refused writes") == 3


def test_topics_rebalances_and_pipelines_of_the_cluster(world: World, watching: Visitor) -> None:
    world.cluster(brokers=3)
    world.topic("orders", partitions=2)
    world.topic("refused", name="orders", partitions=2)  # the name is taken
    world.topic("elsewhere", partitions=1)
    world.apply("Topic", "of-another", {"cluster": {"name": "another"}, "partitions": 1})
    world.apply("SparkPipeline", "copies", PIPELINE)
    world.rebalance("nightly", mode="leaders-only")
    world.settle()
    page = until(watching, "Topics that are not ready")
    assert f"{world.namespace}/nightly Balanced" in page
    assert "Topics that are not ready 2 of 3" in page  # neither of the two wins
    assert f"{world.namespace}/refused" in page
    assert "of-another" not in page
    assert world.condition("Ready", "Topic", "refused").startswith("False")


def test_a_refusal_of_the_api_server_is_a_sentence(
    world: World, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An account without rights, and then no API server at all."""
    world.kubernetes.kubectl("create", "serviceaccount", "nobody", "-n", world.namespace)
    token = world.kubernetes.kubectl("create", "token", "nobody", "-n", world.namespace)
    config = yaml.safe_load(world.kubernetes.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    with Console(broker.bootstrap, tmp_path, "--kubernetes", world.key) as console:
        page = plan_text(Visitor(console).enter())
        assert "Kubernetes refused:" in page
        assert "cannot get resource" in page
        assert token.strip() not in page
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    path.write_text(yaml.safe_dump(config))
    with Console(broker.bootstrap, tmp_path, "--kubernetes", world.key) as console:
        assert "Kubernetes does not answer:" in plan_text(Visitor(console).enter())


def test_only_who_may_describe_the_cluster_sees_its_plan(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console's account may read the status; a user of Kafka without rights must not."""
    world.cluster(brokers=3)
    world.settle()
    monkeypatch.setenv("KUBECONFIG", str(world.kubernetes.kubeconfig))
    own, clients = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    rule = AclEntry(AclResource.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:alice", "*",
                    AclOperation.DESCRIBE, AclPermission.ALLOW)  # fmt: skip
    with (
        RunningBroker(secured_settings(own, clients), directory=tmp_path / "broker"),
        KafkaClient(own) as client,
    ):
        for user in ("alice", "bob"):
            add_user(client, user, f"{user}-secret")
        add_acls(client, [rule])
        options = ("--login", "SCRAM-SHA-512", "--kubernetes", world.key)
        with Console(clients, tmp_path, *options) as console:
            alice, bob = Visitor(console), Visitor(console)
            for user, visitor in (("alice", alice), ("bob", bob)):
                assert visitor.login(user, f"{user}-secret").status == 303
            assert "3 of 3 brokers ready" in plan_text(alice)
            answer = bob.get("/plan")
            assert answer.status == 502
            assert "You may not see this" in answer.text
            assert "brokers ready" not in answer.text


def test_starts_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("main", "a/b/c", "/main", "kafka/"):
        with pytest.raises(UsageError, match="expected NAMESPACE/NAME"):
            console_command(bootstrap="127.0.0.1:1", kubernetes=given)
    with pytest.raises(UsageError, match="give one of them"):
        console_command(bootstrap="127.0.0.1:1", kubernetes="a/b", local=tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    with pytest.raises(CliError, match="--kubernetes a/b: Kubernetes: "):
        console_command(bootstrap="127.0.0.1:1", kubernetes="a/b")
