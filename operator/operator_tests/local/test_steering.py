"""Pause, stop and restart without a change of the manifests, as the console asks for it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from odradek_api.base import Resource
from odradek_api.parse import parse
from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_operator.local import pipelines as local_pipelines
from odradek_operator.local.pipeline_processes import LocalPipeline
from odradek_operator.local.pipelines import LocalPipelines
from odradek_operator.local.steering import NAME, SteeringAction, read_steering, steer, steered
from operator_tests.local.local import KEY, Local


def test_a_paused_cluster_is_not_rolled_until_it_is_resumed(tmp_path: Path) -> None:
    """
    1. Paused: a change of the manifest is noticed, and nothing is restarted.
    2. Resumed: the roll begins. Its restarts, with their reason and end, are in the status.
    3. The manifest was not written; the next runtime does not know of it any more.
    """
    with Local(tmp_path, brokers=3) as local:
        local.topic("orders", partitions=3, replicationFactor=3)
        local.settle()
        before = local.runtime.report.clusters[KEY].pids
        steer(local.state, SteeringAction.PAUSE, KEY)
        local.spec["config"] = {"queued.max.requests": 501}
        paused = local.until(lambda report: "Paused" in str(report.clusters[KEY].status.conditions))
        assert paused.clusters[KEY].pids == before
        written = (local.manifests / "all.yaml").read_text()
        assert "pause" not in written
        steer(local.state, SteeringAction.RESUME, KEY)
        report = local.settle()
        assert set(report.pids.values()).isdisjoint(before.values())
        restarts = report.status.restarts
        assert sorted(one.node for one in restarts) == sorted(before)
        assert all(one.planned and one.began <= one.ready for one in restarts), restarts
        assert all("queued.max.requests changed" in one.reason for one in restarts)
        assert all(one.unavailable == [] for one in restarts), "no client was refused"
        assert sum(one.leaders for one in restarts) >= 3
        assert (local.state / NAME).exists()
        local.die()
        assert not (local.state / NAME).exists()


def test_a_killed_broker_is_in_the_timeline(tmp_path: Path) -> None:
    with Local(tmp_path, brokers=1) as local:
        local.topic("lonely", partitions=1)
        local.settle()
        local.kill(0)
        local.until(lambda report: bool(report.clusters[KEY].status.restarts))
        (entry,) = local.settle().status.restarts
        assert (entry.node, entry.planned) == (0, False)
        assert entry.ready >= entry.began


class Running(LocalPipeline):
    """A driver that runs until it is stopped: a real process, which is not Spark."""

    begun: ClassVar[list[subprocess.Popen[bytes]]] = []

    def _spawn(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        self.begun.append(self._process)


def pipeline() -> Resource[SparkPipelineSpec]:
    made = parse({
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "SparkPipeline",
        "metadata": {"name": "views"},
        "spec": {"kafka": {"bootstrapServers": "a:1"}, "sources": [{"topics": ["t"]}],
                 "sink": {"console": {}}},
    })  # fmt: skip
    assert made is not None
    return made


def test_a_pipeline_is_stopped_started_and_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Running, "begun", [])
    monkeypatch.setattr(local_pipelines, "LocalPipeline", Running)
    monkeypatch.setattr(local_pipelines, "spark_missing", lambda: "")
    pipelines, manifest = LocalPipelines(tmp_path), pipeline()

    def one_pass() -> str:
        pipelines.update(steered([manifest], read_steering(tmp_path)), tmp_path)
        return pipelines.one_pass({}, {}, {})["default/views"].waits

    assert one_pass() == ""
    (first,) = Running.begun
    steer(tmp_path, SteeringAction.RESTART, "default/views")
    assert one_pass() == ""
    assert one_pass() == "", "once"
    _, second = Running.begun
    assert first.poll() is not None
    assert second.poll() is None
    steer(tmp_path, SteeringAction.STOP, "default/views")
    assert one_pass() == "spec.suspend is true"
    assert second.poll() is not None
    steer(tmp_path, SteeringAction.START, "default/views")
    assert one_pass() == ""
    assert len(Running.begun) == 3
    steer(tmp_path, SteeringAction.RESTART, "default/views")
    steer(tmp_path, SteeringAction.RESTART, "default/views")  # in the same second
    assert one_pass() == ""
    assert len(Running.begun) == 4
    pipelines.stop()
    assert manifest.spec.suspend is False


def test_actions_of_two_consoles_are_both_kept(tmp_path: Path) -> None:
    keys = [f"default/p{n}" for n in range(20)]
    threads = [
        threading.Thread(target=steer, args=(tmp_path, SteeringAction.STOP, key)) for key in keys
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_steering(tmp_path).suspend == dict.fromkeys(keys, True)


def test_a_file_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{broken")
    assert steered([pipeline()], read_steering(tmp_path)) == [pipeline()]
