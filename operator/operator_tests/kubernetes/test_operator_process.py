"""The whole operator, with kopf's watch, against a real API server and a model of Kafka."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from odradek_api.base import RESTART_ANNOTATION
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kubernetes.operator import Operator, OperatorOptions
from odradek_operator.main import parse_arguments
from odradek_testkit.kubernetes.control_plane import ControlPlane, ControlPlaneError
from odradek_testkit.kubernetes.world import Wire, World, connect
from odradek_testkit.ports import free_port

PATIENCE_S = 90.0


class Kafkas:
    """The Kafka of each cluster, found by the address that the operator calls."""

    def __init__(self) -> None:
        self.worlds: dict[str, World] = {}

    def admin(self) -> KafkaAdmin:
        return cast(KafkaAdmin, Called(self))


class Called:
    def __init__(self, kafkas: Kafkas) -> None:
        self.bootstrap = ""
        self._kafkas = kafkas

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafkas.worlds[self.bootstrap].kafka, name)


class Running:
    """An operator in a thread of its own, with a loop of its own."""

    def __init__(self, kubernetes: ControlPlane, kafkas: Kafkas, options: OperatorOptions) -> None:
        self.wire = Wire()
        self.error: BaseException | None = None
        self._client = connect(kubernetes, self.wire)
        self._kafkas, self._options = kafkas, options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self.operator: Operator | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self.operator = Operator(self._options, self._client, self._kafkas.admin)
            await self.operator.run(self._stop)

        try:
            asyncio.run(main())
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._client.close()


class Stage:
    """Worlds that are simulated in the background, and the operators of the test."""

    def __init__(self, kubernetes: ControlPlane) -> None:
        self.kubernetes = kubernetes
        self.kafkas = Kafkas()
        self.operators: list[Running] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def world(self, namespace: str, name: str = "main") -> World:
        world = World(self.kubernetes, namespace, name)
        self.kafkas.worlds[f"{name}-bootstrap.{namespace}.svc:9092"] = world
        return world

    def start(self, **options: Any) -> Running:
        made = Running(self.kubernetes, self.kafkas, OperatorOptions(**options))
        self.operators.append(made)
        return made

    def _play(self) -> None:
        while not self._end.wait(0.1):
            for world in list(self.kafkas.worlds.values()):
                try:
                    world.play()
                except Exception:
                    continue

    def close(self) -> None:
        for operator in self.operators:
            operator.stop()
        self._end.set()
        self._thread.join()
        for world in self.kafkas.worlds.values():
            world.close()


def _nobody() -> str:
    """In a container the user is a number without a name."""
    raise KeyError("getpwuid(): uid not found: 10001")


@pytest.fixture
def stage(kubernetes: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig))
    monkeypatch.setattr("getpass.getuser", _nobody)
    made = Stage(kubernetes)
    yield made
    made.close()


def eventually(look: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def ready(*worlds: World) -> None:
    eventually(
        lambda: all(w.condition("Ready") == "True AllBrokersReady" for w in worlds),
        lambda: [w.status() for w in worlds],
    )


def test_two_clusters_topics_and_an_end(stage: Stage, namespace: str) -> None:
    port = free_port()
    operator = stage.start(namespaces=(namespace,), port=port)
    one, two = stage.world(namespace, "one"), stage.world(namespace, "two")
    one.cluster(brokers=3)
    two.cluster(brokers=1)
    for n in range(3):
        one.topic(f"topic-{n}", partitions=2)
    ready(one, two)
    eventually(lambda: len(one.kafka.topics) == 3)
    eventually(lambda: one.condition("Ready", "Topic", "topic-2") == "True AsDesired")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    assert "odradek_operator_clusters 2.0" in text
    assert "odradek_operator_topics 3.0" in text
    assert f'odradek_operator_brokers{{cluster="{namespace}/one"}} 3.0' in text
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
        assert answer.status == 200
    # At rest: nothing is written.
    quiet_since = [0.0, -1.0]

    def quiet() -> bool:
        writes = float(len(operator.wire.writes))
        if writes != quiet_since[1]:
            quiet_since[:] = [time.monotonic(), writes]
        return time.monotonic() - quiet_since[0] > 4

    eventually(quiet, lambda: operator.wire.writes[-5:])
    # A pod that another client deletes triggers a pass: the status changes at once.
    stage.kubernetes.kubectl("delete", "pod", "one-zone-a-0", "-n", namespace, "--wait=false")
    eventually(lambda: len(operator.wire.writes) > quiet_since[1])
    ready(one, two)
    # A namespace ends although Topics have finalizers.
    stage.kubernetes.kubectl("delete", "namespace", namespace, "--wait=false")

    def gone() -> bool:
        try:
            stage.kubernetes.kubectl("get", "namespace", namespace)
        except ControlPlaneError:
            return True
        return False

    eventually(gone, lambda: stage.kubernetes.kubectl("get", "ns", namespace, "-o", "yaml"))
    operator.stop()
    assert operator.error is None


def test_the_api_server_restarts(stage: Stage, namespace: str) -> None:
    operator = stage.start(namespaces=(namespace,))
    world = stage.world(namespace)
    world.cluster(brokers=3)
    ready(world)
    stage.kubernetes.stop_api_server()
    stage.kubernetes.compact_etcd()  # the watches get 410 Gone, and list again
    stage.kubernetes.start_api_server()
    world.cluster(brokers=4)
    eventually(lambda: len(world.kafka.up) == 4, world.where)
    ready(world)
    world.topic("after", partitions=1)
    eventually(lambda: "after" in world.kafka.topics)
    operator.stop()
    assert operator.error is None


def test_an_api_server_that_refuses_some_requests(stage: Stage, namespace: str) -> None:
    """Every 29th request is refused, reads and writes alike; nothing is done twice or lost."""
    requests, codes = itertools.count(1), itertools.cycle([409, 429, 503, 410])
    refused: list[int] = []

    def refuse(_: object) -> int | None:
        if next(requests) % 29:
            return None
        refused.append(next(codes))
        return refused[-1]

    operator = stage.start(namespaces=(namespace,))
    operator.wire.refuse = refuse
    world = stage.world(namespace)
    world.cluster(brokers=3)
    world.topic("orders", partitions=3, replicationFactor=3)
    ready(world)
    eventually(lambda: "orders" in world.kafka.topics, world.where)
    before = set(world.pod_uids())
    world.cluster({RESTART_ANNOTATION: "now"}, brokers=3)
    eventually(lambda: not before & set(world.pod_uids()), world.where)
    ready(world)
    assert world.kafka.away_max <= 1
    assert {409, 410, 429, 503} <= set(refused)
    operator.wire.refuse = lambda _: None
    eventually(lambda: not world.leftovers(), world.leftovers)
    operator.stop()
    assert operator.error is None


def test_two_replicas_one_works(stage: Stage, namespace: str) -> None:
    options = {"namespaces": (namespace,), "lease_namespace": namespace}
    first = stage.start(identity="first", **options)
    eventually(lambda: first.operator is not None and first.operator.working)
    second = stage.start(identity="second", **options)
    world = stage.world(namespace)
    world.cluster(brokers=3)
    ready(world)
    assert second.operator is not None
    assert not second.operator.working
    assert second.wire.writes == []
    first.stop()  # it releases the Lease
    assert first.error is None
    eventually(lambda: second.operator is not None and second.operator.working)
    world.cluster(brokers=4)
    eventually(lambda: len(world.kafka.up) == 4)
    # Another process takes the Lease by force: the holder ends and does not keep working.
    patch = json.dumps({"spec": {"holderIdentity": "third", "leaseDurationSeconds": 600}})
    args = ("patch", "lease", "odradek-operator", "-n", namespace, "--type=merge", "-p", patch)
    stage.kubernetes.kubectl(*args)
    eventually(lambda: second.error is not None)
    assert "lost the Lease" in str(second.error)


def test_racks_follow_the_nodes(stage: Stage, namespace: str) -> None:
    stage.start(namespaces=(namespace,))
    world = stage.world(namespace)
    world.cluster(brokers=2, racks={"topologyKey": f"rack.example/{namespace[:40]}"})
    ready(world)
    assert world.condition("RackAware") == "False OneRack"
    kubectl, label = stage.kubernetes.kubectl, f"rack.example/{namespace[:40]}"
    kubectl("label", "node", "node-a", f"{label}=x")
    kubectl("label", "node", "node-b", f"{label}=y")

    def racks() -> list[str]:
        return sorted(b.get("rack", "") for b in world.status()["brokers"])

    # Both racks, or both brokers in the first one: a broker keeps its rack.
    eventually(lambda: len(racks()) == 2 and "" not in racks(), racks)
    world.cluster(brokers=4, racks={"topologyKey": label})
    eventually(lambda: racks() == ["x", "x", "y", "y"], racks)


def test_the_program_starts_and_ends(kubernetes: ControlPlane, namespace: str) -> None:
    port = free_port()
    command = [sys.executable, "-m", "odradek_operator.main", "-n", namespace, f"--port={port}"]
    command += [f"--lease-namespace={namespace}"]
    env = {**os.environ, "KUBECONFIG": str(kubernetes.kubeconfig)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:

        def ready() -> bool:
            with contextlib.suppress(OSError):
                status: int = urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").status
                return status == 200
            return False

        eventually(ready)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    path = "jsonpath={.spec.holderIdentity}"
    lease = kubernetes.kubectl("get", "lease", "odradek-operator", "-n", namespace, "-o", path)
    assert lease == ""  # released, so that a standby takes over at once


def test_the_program_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments([])
    assert "one of --namespace and --all-namespaces" in capsys.readouterr().err
    assert parse_arguments(["-A", "--image", "r/b:1"]).namespaces == ()
    assert parse_arguments(["-n", "a", "-n", "b"]).namespaces == ("a", "b")
