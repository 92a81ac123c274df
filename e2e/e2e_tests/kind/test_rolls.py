"""Rolling restarts under acks=all load: no record lost, no error, and the status gives reasons."""

from __future__ import annotations

from collections.abc import Callable

from e2e_tests.kind.story import Story
from odradek_e2e.kind import cluster
from odradek_e2e.kind import engine as engines
from odradek_images.table import IMAGES, version
from odradek_testkit.kubernetes.client import Document

NEXT = "next"  # a second tag of the broker's image


def roll(story: Story, trigger: Callable[[], None]) -> list[Document]:
    """Waits until every pod is replaced and the cluster is settled; the states of the roll."""
    before = story.uids()
    with story.watched() as seen:
        trigger()
        story.wait_until(lambda: renewed(before, story.uids()), "every broker is restarted")
        status = story.settle()
    assert status["preferredLeadersPercent"] == 100
    dedicated = len(status.get("controllers", ()))
    assert status["readyBrokers"] == status["brokerCount"] == len(before) - dedicated
    return seen


def renewed(before: dict[str, str], now: dict[str, str]) -> bool:
    return before.keys() == now.keys() and not before.items() & now.items()


def restarted(seen: list[Document]) -> list[int]:
    """The brokers in the order in which they were restarted, each once."""
    order: list[int] = []
    for state in seen:
        if state["state"] == "Restarting":
            order += [b for b in state["brokers"] if b not in order]
    return order


def controller_went_last(seen: list[Document]) -> bool:
    """The broker restarted last was the active controller when it was chosen (it may move)."""
    last = restarted(seen)[-1]
    chosen = next(s for s in seen if s["state"] == "Restarting" and s["brokers"] == [last])
    return bool(chosen["controller"] == last)


def begin(story: Story, **spec: object) -> None:
    story.cluster(**spec)
    story.topic("orders", partitions=6, replicationFactor=3, config={"min.insync.replicas": 2})
    story.settle()


def test_a_roll_by_annotation_by_setting_and_by_image(story: Story) -> None:
    begin(story)
    engine = engines.find()
    name = IMAGES["broker"].repository
    cluster.tag(engine, f"{name}:{version()}", f"{name}:{NEXT}")
    triggers: dict[str, Callable[[], None]] = {
        "annotation": lambda: story.annotate("odradek.dev/restart", "1"),
        "setting": lambda: story.change(config={"num.partitions": 4}),
        "image": lambda: story.change(image=f"{name}:{NEXT}"),
    }
    with story.load("orders") as load:
        for what, trigger in triggers.items():
            seen = roll(story, trigger)
            assert controller_went_last(seen), f"{what}: {seen}"
            waited = [state for state in seen if state["state"] == "Waiting"]
            assert waited, seen
            assert all(state["reason"] and state["since"] for state in waited), waited
            print(f"\n{what}: brokers {restarted(seen)}; waited for: {reasons(waited)}")
    print(story.judge(load))
    images = {c["image"] for pod in story.pods().values() for c in pod["spec"]["containers"]}
    assert images == {f"{name}:{NEXT}"}


def reasons(states: list[Document]) -> str:
    return "; ".join(dict.fromkeys(str(state["reason"]) for state in states))


def test_a_setting_that_needs_no_restart(story: Story) -> None:
    begin(story)
    before = story.uids()
    story.change(config={"log.retention.ms": 3_600_000})
    story.wait_until(lambda: bool(story.status().get("dynamicConfig")), "the setting is altered")
    story.settle()
    assert story.uids() == before
    assert story.status()["dynamicConfig"] == ["log.retention.ms"]


def test_the_operator_is_killed_in_the_middle_of_a_roll(story: Story, operator: str) -> None:
    """The active replica is killed while the first broker restarts; the other one goes on."""
    begin(story)
    before = story.uids()
    with story.load("orders") as load:
        holder = leader(story, operator)
        story.annotate("odradek.dev/restart", "1")
        story.wait_until(lambda: story.uids() != before, "the first broker is restarted")
        story.objects.delete("Pod", holder, operator, force=True)
        story.wait_until(lambda: renewed(before, story.uids()), "every broker is restarted")
        story.settle()
    print(story.judge(load))
    assert leader(story, operator) != holder
    story.wait_until(lambda: ready_replicas(story, operator) == 2, "both replicas are ready again")


def ready_replicas(story: Story, operator: str) -> int:
    status = story.objects.get("Deployment", "odradek", operator)["status"]
    return int(status.get("readyReplicas", 0))


def leader(story: Story, operator: str) -> str:
    """The pod that holds the operator's Lease."""
    lease = story.objects.get("Lease", "odradek-operator", operator)
    return str(lease["spec"]["holderIdentity"]).rpartition("-")[0]
