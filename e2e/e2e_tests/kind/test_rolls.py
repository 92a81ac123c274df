"""Rolling restarts under acks=all load: nothing lost, no error seen, and the status says why."""

from __future__ import annotations

import json
from collections.abc import Callable

from e2e_tests.kind.story import PATIENCE_S, Story, kubectl
from odradek_e2e.kind import cluster
from odradek_e2e.kind import engine as engines
from odradek_images.table import IMAGES, version

NEXT = "next"  # a second tag of the broker's image


def roll(story: Story, trigger: Callable[[], None]) -> list[dict[str, object]]:
    """Until every pod is another one and the cluster is settled; what the status said meanwhile."""
    before = story.uids()
    with story.watched() as seen:
        trigger()
        story.wait_until(lambda: renewed(before, story.uids()), "every broker is restarted")
        status = story.settle()
    assert status["preferredLeadersPercent"] == 100
    apart = len(status.get("controllers", ()))
    assert status["readyBrokers"] == status["brokerCount"] == len(before) - apart
    return seen


def renewed(before: dict[str, str], now: dict[str, str]) -> bool:
    return before.keys() == now.keys() and not before.items() & now.items()


def restarted(seen: list[dict[str, object]]) -> list[int]:
    """The brokers in the order in which they were restarted, each once."""
    order: list[int] = []
    for state in seen:
        if state["state"] == "Restarting":
            order += [b for b in state["brokers"] if b not in order]  # type: ignore[attr-defined]
    return order


def controller_went_last(seen: list[dict[str, object]]) -> bool:
    """Whoever was the active controller when the last broker was chosen; it may have moved."""
    last = restarted(seen)[-1]
    chosen = next(s for s in seen if s["state"] == "Restarting" and s["brokers"] == [last])
    return chosen["controller"] == last


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


def reasons(states: list[dict[str, object]]) -> str:
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
    """The one that works is killed when the first broker is away; the other one goes on."""
    begin(story)
    before = story.uids()
    with story.load("orders") as load:
        holder = leader(operator)
        story.annotate("odradek.dev/restart", "1")
        story.wait_until(lambda: story.uids() != before, "the first broker is restarted")
        kubectl("delete", "pod", holder, f"--namespace={operator}", "--grace-period=0", "--force")
        story.wait_until(lambda: renewed(before, story.uids()), "every broker is restarted")
        story.settle()
    print(story.judge(load))
    assert leader(operator) != holder
    # Whole again: two replicas are ready.
    kubectl("rollout", "status", "deployment/odradek", f"--namespace={operator}",
            f"--timeout={PATIENCE_S:.0f}s")  # fmt: skip


def leader(operator: str) -> str:
    """The pod whose name is on the Lease."""
    lease = json.loads(kubectl("get", "lease", "odradek-operator", f"--namespace={operator}",
                               "-o", "json"))  # fmt: skip
    return str(lease["spec"]["holderIdentity"]).rpartition("-")[0]
