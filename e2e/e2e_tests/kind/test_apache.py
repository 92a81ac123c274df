"""Engine `apache`: the same operator runs Apache Kafka in KRaft mode with the same guarantees."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from e2e_tests.kind.inside import run_inside
from e2e_tests.kind.story import Story
from e2e_tests.kind.test_rolls import begin, controller_went_last, reasons, restarted, roll
from odradek_e2e.kind.places import ZONES
from odradek_testkit.kubernetes.client import RequestFailedError

# With more, librdkafka itself may duplicate records while leaders move: an out-of-order error in
# one partition makes it start a new epoch in all of them (its issue 4953).
ONE_AT_A_TIME: dict[str, Any] = {"max.in.flight": 1}


def test_apache_in_three_zones_rolled_under_load(story: Story) -> None:
    begin(story, engine="apache")
    assert sorted(story.zones()[p["spec"]["nodeName"]] for p in story.pods().values()) == list(
        ZONES
    )
    assert run_inside(story, "roundtrip", "orders", "300") == {"sent": 300, "read": 300}
    assert story.kubectl("get", "kc").splitlines()[1].split()[:5] == [
        "main", "apache", "3", "3", "True",
    ]  # fmt: skip
    triggers: dict[str, Callable[[], None]] = {
        "annotation": lambda: story.annotate("odradek.dev/restart", "1"),
        "setting": lambda: story.change(config={"num.partitions": 2}),
    }
    story.topic("load", partitions=6, replicationFactor=3, config={"min.insync.replicas": 2})
    story.settle()
    with story.load("load", **ONE_AT_A_TIME) as load:
        for what, trigger in triggers.items():
            seen = roll(story, trigger)
            assert controller_went_last(seen), f"{what}: {seen}"
            print(f"\n{what}: brokers {restarted(seen)}; waited for: {reasons(seen)}")
    print(story.judge(load))


def test_apache_is_killed_repaired_and_scaled(story: Story) -> None:
    begin(story, engine="apache", rebalance="auto")
    with story.load("orders", **ONE_AT_A_TIME) as load:
        before = story.uids()
        story.delete("Pod", "main-zone-a-0", force=True)
        story.wait_until(lambda: renewed(story, "main-zone-a-0", before), "a new pod")
        story.settle()
        story.delete("StatefulSet", "main-zone-b", orphan=True)
        story.wait_until(lambda: story.uid("StatefulSet", "main-zone-b") != "", "it is back")
        story.settle()
        assert story.uids()["main-zone-b-0"] == before["main-zone-b-0"]
        for brokers in (4, 3):
            story.change(brokers=brokers)
            story.wait_until(partial(has_pods, story, brokers), f"{brokers} pods")
            status = story.settle()
            assert sorted(one["id"] for one in status["brokers"]) == list(range(brokers))
    print(story.judge(load))


def test_apache_with_dedicated_controllers(story: Story) -> None:
    """Three controllers, three brokers, three zones: rolled under load, a controller killed."""
    begin(
        story,
        engine="apache",
        controllers={"replicas": 3, "storage": {"size": "1Gi"}},
        podTemplate={"env": {"KAFKA_HEAP_OPTS": "-Xmx256m -XX:+UseSerialGC"}},
    )
    nodes = {name: story.zones()[p["spec"]["nodeName"]] for name, p in story.pods().items()}
    dedicated = sorted(name for name in nodes if "controllers" in name)
    assert [nodes[name] for name in dedicated] == list(ZONES)
    assert run_inside(story, "roundtrip", "orders", "300") == {"sent": 300, "read": 300}
    written = 'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'
    active = "kafka_controller_kafkacontroller_activecontrollercount"
    brokers = [pod for pod in nodes if pod not in dedicated]
    story.wait_until(lambda: scraped(story, brokers, written) == 300, "300 records are counted")
    story.wait_until(lambda: scraped(story, dedicated, active) == 1, "one controller is active")
    story.topic("load", partitions=6, replicationFactor=3, config={"min.insync.replicas": 2})
    story.settle()
    with story.load("load", **ONE_AT_A_TIME) as load:
        seen = roll(story, lambda: story.annotate("odradek.dev/restart", "1"))
        order = [node < 10_000 for node in restarted(seen)]  # as far as the watch saw it
        assert order == sorted(order), f"controllers go before brokers: {restarted(seen)}"
        print(f"\nrolled: {restarted(seen)}; waited for: {reasons(seen)}")
        before = story.uids()
        story.delete("Pod", dedicated[0], force=True)
        story.wait_until(lambda: renewed(story, dedicated[0], before), "a new controller")
        story.settle()
    print(story.judge(load))


def scraped(story: Story, pods: list[str], metric: str) -> float:
    """The sum of a metric over the pods; -1 while a pod does not answer."""
    total = 0.0
    for pod in pods:
        path = f"/api/v1/namespaces/{story.namespace}/pods/{pod}:9404/proxy/metrics"
        try:
            lines = story.objects.read(path).splitlines()
        except RequestFailedError:
            return -1  # on a busy machine the first answer may time out
        total += sum(float(line.split()[-1]) for line in lines if line.startswith(metric))
    return total


def has_pods(story: Story, count: int) -> bool:
    return len(story.uids()) == count


def renewed(story: Story, name: str, before: dict[str, str]) -> bool:
    return story.uids().get(name, before[name]) != before[name]
