"""Buttons: pause, resume, stop, start and restart, on this machine and on Kubernetes; who may."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml

from console_tests.conftest import Console, Visitor, add_user
from console_tests.reports import written_runtime
from odradek_api.base import RESTART_ANNOTATION
from odradek_api.kafka_cluster.status import RestartStatus
from odradek_console.web.timeline import away_text, restart_timeline
from odradek_operator.local.steering import read_steering
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

CLUSTER, PIPELINE = "default/main", "default/views-by-country"
PIPELINE_PAGE = f"/pipelines/{PIPELINE}"
SPEC: dict[str, Any] = {
    "cluster": {"name": "main"},
    "sources": [{"name": "orders", "topics": ["orders"], "format": {"type": "raw"}}],
    "sink": {"topic": {"name": "copies"}},
}


def actions(page: str) -> list[str]:
    return re.findall(r'name="action" value="(\w+)"', page)


# -- on this machine -------------------------------------------------------------------------------


def test_actions_reach_the_runtime_after_a_confirmation(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """The runtime's answer to them: operator_tests/local/test_steering.py."""
    with (
        written_runtime(tmp_path / "shop") as shop,
        Console(broker.bootstrap, tmp_path, "--local", str(shop)) as console,
    ):
        visitor, state = Visitor(console).enter(), shop / ".odradek"
        assert actions(visitor.get("/plan").text) == ["pause"]
        assert "Elect preferred leaders" in visitor.get("/plan").text
        preview = visitor.submit("/plan/steer", {"key": CLUSTER, "action": "pause"})
        assert "Nothing has been changed yet" in preview.text
        assert "no roll, no replacement" in preview.text
        assert read_steering(state).pause == {}
        visitor.change("/plan/steer", {"key": CLUSTER, "action": "pause"})
        assert read_steering(state).pause == {CLUSTER: True}
        visitor.change("/plan/steer", {"key": CLUSTER, "action": "resume"})
        assert read_steering(state).pause == {CLUSTER: False}

        assert actions(visitor.get(PIPELINE_PAGE).text) == ["restart", "stop"]
        visitor.change(PIPELINE_PAGE, {"action": "restart"})
        assert PIPELINE in read_steering(state).restarts
        page = visitor.change(PIPELINE_PAGE, {"action": "stop"})
        assert "The driver is being stopped" in page.text
        assert ">Stopped<" in page.text
        assert actions(page.text) == ["start"]
        assert actions(visitor.change(PIPELINE_PAGE, {"action": "start"}).text) == [
            "restart",
            "stop",
        ]
        lines = [json.loads(line) for line in console.audit.read_text().splitlines()]
        assert [(one["action"], one["subject"]) for one in lines] == [
            ("pause KafkaCluster", CLUSTER), ("resume KafkaCluster", CLUSTER),
            ("restart SparkPipeline", PIPELINE), ("stop SparkPipeline", PIPELINE),
            ("start SparkPipeline", PIPELINE),
        ]  # fmt: skip
        for path, fields in (
            ("/plan/steer", {"key": "default/../../x", "action": "pause"}),
            ("/plan/steer", {"key": CLUSTER, "action": "stop"}),
            ("/pipelines/default/nothing", {"action": "stop"}),
            (PIPELINE_PAGE, {"action": "pause"}),
            (PIPELINE_PAGE, {}),
        ):
            refused = visitor.submit(path, fields)
            assert 'class="notice error"' in refused.text, path
        assert len(console.audit.read_text().splitlines()) == len(lines)


def test_forms_of_other_sites_and_read_only(broker: RunningBroker, tmp_path: Path) -> None:
    with written_runtime(tmp_path / "shop") as shop:
        with Console(broker.bootstrap, tmp_path, "--local", str(shop)) as console:
            visitor = Visitor(console).enter()
            fields = {"key": CLUSTER, "action": "pause", "csrf": visitor.csrf()}
            forged = {"Origin": "http://evil.example"}
            assert visitor.post("/plan/steer", fields, forged).status == 403
            assert visitor.post("/plan/steer", {**fields, "csrf": "x"}).status == 403
            assert visitor.post(PIPELINE_PAGE, {"action": "stop", "csrf": ""}).status == 403
        with Console(broker.bootstrap, tmp_path, "--local", str(shop), "--read-only") as console:
            visitor = Visitor(console).enter()
            assert actions(visitor.get("/plan").text) == []
            assert "Elect preferred leaders" not in visitor.get("/plan").text
            assert actions(visitor.get(PIPELINE_PAGE).text) == []
            fields["csrf"] = visitor.csrf("/plan")
            assert "read-only" in visitor.post("/plan/steer", fields).text
            assert "read-only" in visitor.post(PIPELINE_PAGE, {**fields, "action": "stop"}).text
        assert read_steering(shop / ".odradek").pause == {}


def test_a_runtime_that_has_ended_has_no_buttons(broker: RunningBroker, tmp_path: Path) -> None:
    with written_runtime(tmp_path / "shop") as shop:
        pass
    with Console(broker.bootstrap, tmp_path, "--local", str(shop)) as console:
        visitor = Visitor(console).enter()
        assert actions(visitor.get("/plan").text) == []
        page = visitor.change("/plan/steer", {"key": CLUSTER, "action": "pause"})
        assert "the runtime does not run now" in page.text


# -- the timeline ----------------------------------------------------------------------------------


def test_restarts_are_listed_with_what_clients_noticed(
    broker: RunningBroker, tmp_path: Path
) -> None:
    with (
        written_runtime(tmp_path / "shop") as shop,
        Console(broker.bootstrap, tmp_path, "--local", str(shop)) as console,
    ):
        page = unescape(Visitor(console).enter().get("/plan").text)
    assert page.count('class="restart planned"') == 4
    assert page.count('class="restart refused"') == 1
    assert "writes to audit-0" in page
    assert "it ended with signal 9 (SIGKILL)" in page
    assert ">34 s<" in page
    assert "no refused writes; others led 12 partitions" in page
    assert re.search(r">\d+ s so far<", page), "the one that is under way"
    assert " style=" not in page


def test_a_timeline_is_text_and_stays_in_its_frame() -> None:
    now_ms = 1_800_000_000_000
    many = [
        RestartStatus(node=1, reason="<script>alert(1)</script>", began="2027-01-15T07:59:59Z"),
        RestartStatus(node=2, began="2020-01-01T00:00:00Z", ready="2020-01-01T00:00:09Z"),
        RestartStatus(node=3, began="not a time"),
    ]
    drawn = str(restart_timeline(many, now_ms))
    assert "<script>" not in drawn
    assert "node 3" not in drawn
    for x, width in re.findall(
        r'<rect class="restart[^>]* x="([\d.]+)"[^>]* width="([\d.]+)"', drawn
    ):
        assert 84 <= float(x) <= 640 - 10 - float(width) + 0.1
    assert "not a time" not in str(restart_timeline([], now_ms))
    assert [away_text(one, now_ms) for one in many[1:]] == ["9 s", "–"]


# -- on Kubernetes ---------------------------------------------------------------------------------


def found(world: World, kind: str, name: str) -> dict[str, Any]:
    document = world.get(kind, name)
    assert document is not None
    return document


def pause_of(world: World) -> bool:
    return bool(found(world, "KafkaCluster", "main")["spec"].get("pause"))


def console_of(
    world: World, broker: RunningBroker, directory: Path, kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Console:  # fmt: skip
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return Console(broker.bootstrap, directory, "--kubernetes", world.key)


def test_actions_become_fields_of_the_resources(
    kubernetes: ControlPlane, namespace: str, broker: RunningBroker, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """
    1. Paused from the page: the operator reports it, and does not roll a changed spec.
    2. Resumed: it rolls.
    3. A pipeline is stopped, started, restarted: its spec and its annotation.
    """
    world = World(kubernetes, namespace)
    world.cluster(brokers=3)
    world.apply("SparkPipeline", "copies", SPEC)
    world.settle()
    with console_of(world, broker, tmp_path, kubernetes.kubeconfig, monkeypatch) as console:
        visitor = Visitor(console).enter()
        assert actions(visitor.get("/plan").text) == ["pause"]
        visitor.change("/plan/steer", {"key": world.key, "action": "pause"})
        assert pause_of(world)
        world.one_pass()
        wait_until(
            lambda: actions(visitor.get("/plan").text) == ["resume"], "it is shown as paused"
        )
        assert "the operator changes nothing" in visitor.get("/plan").text
        visitor.change("/plan/steer", {"key": world.key, "action": "resume"})
        assert not pause_of(world)

        page = f"/pipelines/{namespace}/copies"
        visitor.change(page, {"action": "stop"})
        assert found(world, "SparkPipeline", "copies")["spec"]["suspend"] is True
        wait_until(lambda: actions(visitor.get(page).text) == ["start"], "it can be started")
        visitor.change(page, {"action": "restart"})
        copies = found(world, "SparkPipeline", "copies")
        assert copies["spec"]["suspend"] is False
        assert copies["metadata"]["annotations"][RESTART_ANNOTATION]
    world.close()


def test_an_account_without_the_right_has_no_buttons(
    kubernetes: ControlPlane, namespace: str, broker: RunningBroker, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It may read, as the chart's account without console.actions; the API server has the say."""
    world = World(kubernetes, namespace)
    world.cluster(brokers=3)
    world.settle()
    kubernetes.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    kinds = "kafkaclusters.odradek.dev,topics.odradek.dev,kafkarebalances.odradek.dev,"
    kubernetes.kubectl("create", "role", "reader", "--verb=get,list", "-n", namespace,
                       f"--resource={kinds}sparkpipelines.odradek.dev")  # fmt: skip
    kubernetes.kubectl("create", "rolebinding", "reader", "--role=reader", "-n", namespace,
                       f"--serviceaccount={namespace}:reader")  # fmt: skip
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    token = kubernetes.kubectl("create", "token", "reader", "-n", namespace).strip()
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    with console_of(world, broker, tmp_path, path, monkeypatch) as console:
        visitor = Visitor(console).enter()
        visitor.sees("/plan", "3 of 3 brokers ready")
        assert actions(visitor.get("/plan").text) == []
        page = visitor.change("/plan/steer", {"key": world.key, "action": "pause"})
        assert "Kubernetes refused:" in page.text
        assert "cannot patch resource" in page.text
        assert token not in page.text
    assert not pause_of(world)
    world.close()


def test_a_user_needs_alter_on_the_cluster_in_kafka(
    kubernetes: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console's account may patch; alice may ALTER the cluster in Kafka, bob may not."""
    world = World(kubernetes, namespace)
    world.cluster(brokers=3)
    world.settle()
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig))
    own, clients = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    rules = [
        AclEntry(AclResource.CLUSTER, "kafka-cluster", PatternType.LITERAL, f"User:{user}", "*",
                 operation, AclPermission.ALLOW)
        for user, operation in (("alice", AclOperation.DESCRIBE), ("alice", AclOperation.ALTER),
                                ("bob", AclOperation.DESCRIBE))
    ]  # fmt: skip
    with (
        RunningBroker(secured_settings(own, clients), directory=tmp_path / "broker"),
        KafkaClient(own) as client,
    ):
        for user in ("alice", "bob"):
            add_user(client, user, f"{user}-secret")
        add_acls(client, rules)
        options = ("--login", "SCRAM-SHA-512", "--kubernetes", world.key)
        with Console(clients, tmp_path, *options) as console:
            alice, bob = Visitor(console), Visitor(console)
            for user, visitor in (("alice", alice), ("bob", bob)):
                assert visitor.login(user, f"{user}-secret").status == 303
            assert actions(bob.get("/plan").text) == []
            page = bob.change("/plan/steer", {"key": world.key, "action": "pause"})
            assert "Kafka does not allow you to ALTER the cluster" in page.text
            assert not pause_of(world)
            assert actions(alice.get("/plan").text) == ["pause"]
            alice.change("/plan/steer", {"key": world.key, "action": "pause"})
            assert pause_of(world)
            lines = [json.loads(line) for line in console.audit.read_text().splitlines()]
            ends = {one["user"]: one["outcome"] for one in lines if "pause" in one["action"]}
            assert ends["alice"] == "done"
            assert ends["bob"].startswith("refused: Kafka does not allow")
    world.close()
