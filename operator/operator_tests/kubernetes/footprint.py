"""The operator's footprint with many Topics: `make bench-operator TOPICS=1000`.

An operator in a process of its own, with kopf's watch and a real API server; Kafka is the model of
world.py, inside that process (so its memory counts as the operator's). Measured: from the first
Topic applied until the last is Ready, writes per Topic, and at rest memory, CPU and writes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import psutil
import yaml

from odradek_api.crd import CRDS
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kubernetes import objects
from odradek_operator.kubernetes.operator import Operator, OperatorOptions
from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.fake_kafka import FakeKafka
from odradek_testkit.kubernetes.world import Wire, World, connect

REST_S = 60.0


async def operate(kubeconfig: Path) -> None:
    """The child: an operator, and three brokers that answer."""
    kafka, wire, stop = FakeKafka(), Wire(), asyncio.Event()
    told = {"controller.quorum.voters": "0@a:1,1@b:1,2@c:1"}
    kafka.set_up({n: {**told, "broker.rack": f"zone-{'abc'[n]}"} for n in range(3)})
    plane = cast(ControlPlane, type("At", (), {"kubeconfig": kubeconfig}))
    client = connect(plane, wire)
    operator = Operator(OperatorOptions(("bench",)), client, lambda: cast(KafkaAdmin, kafka))
    running = asyncio.create_task(operator.run(stop))
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(len(wire.writes), flush=True)
    stop.set()
    await running


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def rss_mb(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss / (1 << 20))


def ready_topics(world: World) -> int:
    topics = world.own.list(objects.Topic, namespace="bench")
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in one["status"]["conditions"])
        for one in topics
        if one.get("status")
    )


def measure(plane: ControlPlane, count: int) -> dict[str, Any]:
    for zone in "abc":
        plane.add_node(f"node-{zone}", zone=f"zone-{zone}")
    plane.kubectl("apply", "-f", str(CRDS))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
    plane.kubectl("create", "namespace", "bench")
    command = [sys.executable, "-m", "operator_tests.kubernetes.footprint", "--child"]
    child = subprocess.Popen(
        [*command, str(plane.kubeconfig)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)},
    )  # fmt: skip
    world = World(plane, "bench")
    try:
        world.cluster(brokers=3)
        while world.condition("Ready") != "True AllBrokersReady":
            world.play()
            time.sleep(0.2)
        empty_mb, before_cpu = rss_mb(child.pid), cpu_s(child.pid)
        documents = [
            {"apiVersion": "odradek.dev/v1alpha1", "kind": "Topic",
             "metadata": {"name": f"topic-{n}", "namespace": "bench"},
             "spec": {"cluster": {"name": "main"}, "partitions": 3, "replicationFactor": 3,
                      "config": {"retention.ms": 3600000}}}
            for n in range(count)
        ]  # fmt: skip
        began = time.monotonic()
        plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(documents))
        applied_s = time.monotonic() - began
        while ready_topics(world) < count:
            time.sleep(0.5)
        converged_s, busy_cpu_s = time.monotonic() - began, cpu_s(child.pid) - before_cpu
        time.sleep(10)
        writes, at_rest = _writes(child), cpu_s(child.pid)
        time.sleep(REST_S)
        return {
            "topics": count,
            "all applied by kubectl after s": round(applied_s, 1),
            "all Ready after s": round(converged_s, 1),
            "operator's CPU until then, s": round(busy_cpu_s, 1),
            "writes": writes,
            "RSS without topics MB": round(empty_mb),
            "RSS at rest MB": round(rss_mb(child.pid)),
            "CPU at rest %": round(100 * (cpu_s(child.pid) - at_rest) / REST_S, 1),
            "writes at rest": _writes(child) - writes,
        }
    finally:
        world.close()
        assert child.stdin is not None
        child.stdin.close()
        child.wait(60)


def _writes(child: subprocess.Popen[str]) -> int:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return int(child.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--child", type=Path)
    given = parser.parse_args()
    if given.child:
        asyncio.run(operate(given.child))
        return
    with tempfile.TemporaryDirectory() as directory, ControlPlane(Path(directory)) as plane:
        print(json.dumps(measure(plane, given.topics), indent=2))


if __name__ == "__main__":
    main()
