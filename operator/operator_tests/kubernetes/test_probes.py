"""The probes of a rendered pod, sent to a real broker: when would Kubernetes act?

`Kubelet` does what a kubelet does with a probe: GET the path on the named port, count failures in
a row, act at the threshold. Only the pauses between two probes are shorter.
"""

from __future__ import annotations

import http.client
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek_operator.kafka.observed import ObservedBroker, Phase
from odradek_operator.local.processes import LocalBroker
from odradek_testkit.ports import free_port
from odradek_testkit.small_disk import SmallDisk
from operator_tests.kubernetes.test_pod_manifests import container

DEADLINE_S = 60.0
POLL_S = 0.1


class Kubelet:
    def __init__(self, broker: LocalBroker, settings: dict[str, str]) -> None:
        self.broker, self.settings = broker, settings
        self.container = container("embedded", metrics={"port": int(broker.admin.split(":")[1])})

    def start(self) -> None:
        self.broker.start(self.settings)

    def asks(self, probe: str) -> bool:
        """Sends the probe once. A status from 200 to 399 is a success."""
        found: dict[str, Any] = self.container[probe]
        ports = {one["name"]: one["containerPort"] for one in self.container["ports"]}
        get = found["httpGet"]
        connection = http.client.HTTPConnection(
            "127.0.0.1", ports[get["port"]], timeout=found["timeoutSeconds"]
        )
        try:
            connection.request("GET", get["path"])
            return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def fails(self, probe: str) -> bool:
        """As often in a row as the probe allows, and once more: then Kubernetes acts."""
        for _ in range(self.container[probe]["failureThreshold"]):
            if self.asks(probe):
                return False
            time.sleep(POLL_S)
        return True

    def ended(self) -> ObservedBroker | None:
        """Kubernetes starts a container again that has ended, whatever its probes say."""
        self.broker.supervise(time.time())
        seen = self.broker.observe(time.time())
        return seen if seen.phase in (Phase.CRASHED, Phase.STOPPED) else None


def until(true: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < give_up, what
        time.sleep(POLL_S)


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    address, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    broker = LocalBroker(0, "a", tmp_path / "broker-0", address, admin)
    settings = {
        "node.id": "0",
        "listeners": f"PLAINTEXT://{address}",
        "log.dirs": str(tmp_path / "broker-0" / "data"),
        "odradek.admin.listener": admin,
    }
    yield Kubelet(broker, settings)
    broker.kill()
    broker.wait()


def test_a_broker_that_waits_for_room_gets_no_clients_and_is_left_alone(
    kubelet: Kubelet,
) -> None:
    """Its disk is full: not ready, but alive; free space helps, a restart does not."""
    with SmallDisk(kubelet.broker.directory / "data", megabytes=20) as disk:
        disk.fill()
        kubelet.start()
        until(lambda: kubelet.asks("startupProbe"), "it is up")
        assert kubelet.fails("readinessProbe"), "no Service sends clients there"
        assert "waiting for room" in kubelet.broker.observe(time.time()).detail
        assert kubelet.asks("livenessProbe")
        disk.make_room()
        until(lambda: kubelet.asks("readinessProbe"), "clients are sent there again")
        assert kubelet.asks("livenessProbe")
        assert kubelet.ended() is None
        kubelet.broker.kill()  # before its disk goes
        kubelet.broker.wait()


def test_a_broker_that_only_a_restart_helps_is_restarted(kubelet: Kubelet) -> None:
    """Its directory was removed: not ready; then it exits, or fails /healthz and is restarted."""
    kubelet.start()
    until(lambda: kubelet.asks("readinessProbe"), "it is ready")
    shutil.rmtree(kubelet.settings["log.dirs"])
    until(lambda: not kubelet.asks("readinessProbe"), "no Service sends clients there")
    until(lambda: kubelet.ended() or kubelet.fails("livenessProbe"), "Kubernetes restarts it")
    until(kubelet.ended, "it has ended")
    seen = kubelet.broker.observe(time.time())
    assert seen.ended is not None
    assert seen.ended.exit_code == 74
    assert kubelet.settings["log.dirs"] in seen.ended.words
