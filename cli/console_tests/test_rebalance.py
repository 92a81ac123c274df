"""The page for rebalancing: four real brokers, of which two have everything.

A proposal is made, shown, confirmed and carried out; and cancelled, by its user and by the end of
the console. Who may do it is up to Kafka.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from console_tests.conftest import Answer, Console, Kafka, Visitor, add_user
from odradek_console.cluster.access import Access
from odradek_console.cluster.rebalance_run import CANCELLED, MOVING, RebalanceRun, RunError, Runs
from odradek_operator.kafka.balance.document import Move, Proposal, from_json
from odradek_operator.kafka.balance.execution import LEADER_RATE, ExecutionProgress
from odradek_protocol.acl_codes import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from odradek_protocol.client import KafkaClient
from odradek_protocol.client.admin.acls import add_acls
from odradek_protocol.client.admin.brokers import describe_cluster
from odradek_protocol.client.admin.configs import ResourceType, describe_configs
from odradek_protocol.client.errors import ClientError
from odradek_testkit.cluster import Cluster
from odradek_testkit.engines import RunningBroker
from odradek_testkit.ports import free_port
from odradek_testkit.secured import secured_settings
from odradek_testkit.waiting import wait_until

PARTITIONS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(4, directory=tmp_path_factory.mktemp("cluster")) as running:
        yield running


def skewed(cluster: Cluster, topic: str) -> None:
    """All replicas on brokers 1 and 2, 0.4 MB in each partition."""
    new = NewTopic(topic, PARTITIONS, replica_assignment=[[1, 2] for _ in range(PARTITIONS)])
    admin = cluster.admin()  # kept: its requests end with it
    admin.create_topics([new])[topic].result(60)
    cluster.wait_in_sync(topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    for number in range(PARTITIONS * 8):
        producer.produce(topic, bytes(50_000), partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    cluster.wait_in_sync(topic)


def brokers_of(cluster: Cluster, topic: str) -> set[int]:
    return {b for p in cluster.partitions(topic).values() for b in p.replica_nodes}


def proposed(visitor: Visitor, **fields: str) -> tuple[str, Answer]:
    """Its id, and its page."""
    sent = {"mode": "full", "brokers": "", "throttle": "50", "exclude": "", **fields}
    answer = visitor.post("/rebalance/propose", {**sent, "csrf": visitor.csrf()})
    where = answer.headers["location"]
    return where.partition("proposal=")[2], visitor.get(where)


def cells(page: str, broker: int) -> list[str]:
    """The texts of a broker's row."""
    row = next(one for one in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
               if f'href="/brokers/{broker}"' in one)  # fmt: skip
    return [unescape(re.sub(r"<[^>]+>", "", one)).strip()
            for one in re.findall(r"<td.*?</td>", row, re.DOTALL)]  # fmt: skip


def throttles(cluster: Cluster) -> set[str]:
    """Brokers that have a replication throttle."""
    with KafkaClient(cluster.bootstrap) as client:
        found = describe_configs(client, ResourceType.BROKER, ["1", "2", "3", "4"])
    return {name for name, answer in found.items()
            if isinstance(answer, ClientError)
            or (LEADER_RATE in answer and answer[LEADER_RATE].value)}  # fmt: skip


def test_from_the_heat_map_to_balanced_brokers(cluster: Cluster, tmp_path: Path) -> None:
    """
    1. The map: brokers 1 and 2 have everything; rates follow when they are measured.
    2. A proposal: now next to proposed, the moves with bytes; nothing has moved.
    3. Its confirmation names each partition from → to; then the replicas are where it says.
    4. The document is the one that `odradek rebalance` reads; the audit log has the change.
    """
    skewed(cluster, "orders")
    with Console(cluster.bootstrap, tmp_path) as console:
        visitor = Visitor(console).enter()
        page = visitor.get("/rebalance").text
        assert cells(page, 1)[-1] == str(PARTITIONS)
        assert cells(page, 3)[-1] == "0"
        assert re.search(r'heat-9" title="\d+ % of the mean">\d', page)
        wait_until(lambda: "measuring…" not in visitor.get("/rebalance").text, "rates")
        name, answer = proposed(visitor)
        assert "What would move" in answer.text
        now_and_then = cells(answer.text, 3)[-2:]
        assert now_and_then == ["0", str(PARTITIONS // 4)]
        assert brokers_of(cluster, "orders") == {1, 2}
        proposal = from_json(visitor.get(f"/rebalance/proposals/{name}").text)
        assert f"{len(proposal.moves)} partitions change" in answer.text

        preview = visitor.submit("/rebalance/apply", {"proposal": name})
        assert "Nothing has been changed yet" in preview.text
        for move in proposal.moves:
            assert f"{move.topic}-{move.partition}" in preview.text
        done = visitor.change("/rebalance/apply", {"proposal": name})
        assert "The rebalance has begun." in done.text
        wait_until(lambda: "The last rebalance is done" in visitor.get("/rebalance").text, "done")
        wait_until(lambda: are_placed(cluster, proposal), "every replica is where it belongs")
        wait_until(lambda: throttles(cluster) == set(), "no throttle is left")
        audit = [json.loads(line) for line in console.audit.read_text().splitlines()]
        (line,) = [one for one in audit if one["action"] == "rebalance"]
        assert line["outcome"] == "done"
        assert len(line["changes"]) == len(proposal.moves)
        assert "nothing to move" in proposed(visitor, mode="leaders-only")[1].text


def are_placed(cluster: Cluster, proposal: Proposal) -> bool:
    """As the broker that is asked knows it, which may be later than the broker of the console."""
    placed = cluster.partitions("orders")
    return all(
        tuple(placed[move.partition].replica_nodes) == move.after
        and placed[move.partition].leader_id == move.after[0]
        for move in proposal.moves
    )


def test_a_rebalance_is_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    """
    1. A broker is down, so nothing begins: the page says why. A second rebalance is refused.
    2. Its cancellation waits for the broker: no move begins, and it is cancelled again.
    3. The next one is cancelled by the end of the console.
    """
    skewed(cluster, "payments")
    with Console(cluster.bootstrap, tmp_path) as console:
        visitor = Visitor(console).enter()
        name, _ = proposed(visitor, exclude="orders")
        cluster.stop(4)
        wait_until(lambda: not_live(cluster, 4), "broker 4 is fenced")
        assert "has begun" in visitor.change("/rebalance/apply", {"proposal": name}).text
        page = visitor.sees("/rebalance", "No further move begins: broker 4 is not live.")
        assert "A rebalance is under way" in page.text
        again = visitor.change("/rebalance/apply", {"proposal": name}).text
        assert "Nothing was changed, or not all of it: a rebalance of anonymous is under" in again
        waits = visitor.change("/rebalance/cancel", {})
        assert "A rebalance is being cancelled" in waits.text
        cluster.start([4])
        wait_until(lambda: not not_live(cluster, 4), "broker 4 is back")
        wait_until(
            lambda: (
                "The last rebalance was cancelled" in visitor.change("/rebalance/cancel", {}).text
            ),
            "it is cancelled when the brokers answer",
        )
        assert brokers_of(cluster, "payments") == {1, 2}
        assert "No rebalance is under way." in visitor.submit("/rebalance/cancel", {}).text
        visitor.change("/rebalance/apply", {"proposal": name})
    assert "was cancelled, because the console ends" in console.log_path.read_text()
    wait_until(lambda: throttles(cluster) == set(), "no throttle is left")


def not_live(cluster: Cluster, broker: int) -> bool:
    with KafkaClient(cluster.bootstrap) as client:
        return describe_cluster(client).brokers[broker].fenced


def test_wrong_wishes_are_sentences(cluster: Cluster, tmp_path: Path) -> None:
    with Console(cluster.bootstrap, tmp_path) as console:
        visitor = Visitor(console).enter()
        for fields, words in (
            ({"mode": "add-brokers", "brokers": "3,x"}, "expected ids of brokers, such as 3, 4"),
            ({"mode": "remove-brokers", "brokers": "77"}, "the cluster has no broker 77"),
            ({"mode": "sideways"}, "is unknown"),
            ({"throttle": "0"}, "expected MB per second, at least 1"),
        ):
            assert words in unescape(proposed(visitor, **fields)[1].text).replace("The c", "the c")
        assert "not known any more" in visitor.get("/rebalance?proposal=nothing").text
        assert visitor.get("/rebalance/proposals/nothing").status == 404
        gone = visitor.submit("/rebalance/apply", {"proposal": "nothing"})
        assert "not known any more" in gone.text


def test_kafka_decides_who_may(tmp_path: Path) -> None:
    """alice may see the cluster but not change it; bob may not even see it."""
    own, clients = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    rules = [
        AclEntry(kind, name, PatternType.LITERAL, "User:alice", "*", operation, AclPermission.ALLOW)
        for kind, name, operation in (
            (AclResource.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE),
            (AclResource.TOPIC, "*", AclOperation.DESCRIBE),
            (AclResource.TOPIC, "*", AclOperation.DESCRIBE_CONFIGS),
        )
    ]
    with (
        RunningBroker(secured_settings(own, clients), directory=tmp_path / "broker"),
        KafkaClient(own) as client,
    ):
        for user in ("alice", "bob"):
            add_user(client, user, f"{user}-secret")
        add_acls(client, rules)
        with Console(clients, tmp_path, "--login", "SCRAM-SHA-512") as console:
            alice, bob = Visitor(console), Visitor(console)
            for user, visitor in (("alice", alice), ("bob", bob)):
                assert visitor.login(user, f"{user}-secret").status == 303
            answer = bob.get("/rebalance")
            assert answer.status == 502
            assert "You may not see this" in answer.text
            assert alice.get("/rebalance").status == 200
            name, page = proposed(alice)
            assert "The cluster is balanced" in page.text
            assert name not in bob.get(f"/rebalance?proposal={name}").text.replace(
                f"/rebalance?proposal={name}", ""
            )
            assert bob.get(f"/rebalance/proposals/{name}").status == 404


def test_a_user_without_the_right_does_not_stop_the_rebalance_of_another(tmp_path: Path) -> None:
    """bob may describe the cluster, and so sees the run; Kafka refuses its cancellation."""
    own, clients = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    rule = AclEntry(AclResource.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:bob", "*",
                    AclOperation.DESCRIBE, AclPermission.ALLOW)  # fmt: skip
    moves = [Move("orders", 0, (1,), (1,), 0, 0.0, "leaders only: nothing else is asked of Kafka")]
    proposal = Proposal(1, "leaders-only", 1e6, [], moves, [], [], 0, 0.0, 1, [])
    runs = Runs()
    with (
        RunningBroker(secured_settings(own, clients), directory=tmp_path / "broker"),
        KafkaClient(own) as administrator,
    ):
        add_user(administrator, "bob", "bob-secret")
        add_acls(administrator, [rule])
        Kafka(administrator).topic("orders", 1)
        bob = Access.from_properties(clients, {}).logged_in("SCRAM-SHA-512", "bob", "bob-secret")
        run = runs.last = RebalanceRun(proposal, "carol", 0, ExecutionProgress({}, 0, 0.0))
        with bob.client() as client, pytest.raises((RunError, ClientError), match="AUTHORIZATION"):
            runs.cancel(client)
        assert run.state == MOVING
        assert not run.stop.is_set()
        runs.cancel(administrator)
        assert run.state == CANCELLED
        assert run.stop.is_set()
