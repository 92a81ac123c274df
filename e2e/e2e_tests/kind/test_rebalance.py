"""KafkaRebalance on Kubernetes: new brokers get their share, and leaving ones are emptied."""

from __future__ import annotations

import json
from typing import Any

from e2e_tests.kind.story import API_VERSION, CLUSTER, Story
from e2e_tests.kind.test_rolls import begin

NAME = "even"


def rebalance(story: Story, **spec: Any) -> None:
    story.apply(
        {
            "apiVersion": API_VERSION,
            "kind": "KafkaRebalance",
            "metadata": {"name": NAME},
            "spec": {"cluster": {"name": CLUSTER}, **spec},
        }
    )


def status(story: Story) -> dict[str, Any]:
    found: dict[str, Any] = story.get("KafkaRebalance", NAME).get("status") or {}
    return found


def until_phase(story: Story, trigger: str, phase: str) -> dict[str, Any]:
    """The status in this phase of the proposal that was made for an event."""
    found: dict[str, Any] = {}

    def there() -> bool:
        nonlocal found
        found = status(story)
        return found.get("trigger") == trigger and found.get("phase") == phase

    try:
        story.wait_until(there, f"{phase} after {trigger}")
    except AssertionError as error:
        raise AssertionError(
            f"no {phase} after {trigger}: {json.dumps(found, indent=1)}"
        ) from error
    return found


def holding(story: Story) -> set[int]:
    return {b for p in story.partitions("orders") for b in p["replicas"]}


def approve(story: Story, proposal: str) -> None:
    """As a person does."""
    story.kubectl("annotate", "kafkarebalance", NAME, "--overwrite",
                  f"odradek.dev/approve={proposal}")  # fmt: skip


def test_three_to_five_to_three_with_a_rebalance(story: Story) -> None:
    """The operator proposes after each change of spec.brokers; nothing moves before the approval.
    Under acks=all load; the loads of the proposal come from the brokers' own measurements."""
    begin(story)
    rebalance(story, throttle="20M", automatic={"scaleUp": True, "scaleDown": True})
    story.wait_until(lambda: bool(status(story).get("known")), "the brokers are known")
    assert holding(story) == {0, 1, 2}
    with story.load("orders") as load:
        story.change(brokers=5)
        story.wait_until(lambda: len(story.uids()) == 5, "five pods")
        found = until_phase(story, "added:3,4", "Proposed")
        assert found["mode"] == "add-brokers"
        assert found["moves"] > 0
        assert found["firstMoves"]
        assert any(g["name"] == "replicas" and g["after"] < g["before"] for g in found["goals"])
        assert "proposal.json.gz" in story.get("ConfigMap", found["document"])["binaryData"]
        assert holding(story) == {0, 1, 2}, "nothing moves before the approval"
        print(
            f"\nproposed: {found['moves']} moves, {found['bytes']} bytes: {found['firstMoves'][0]}"
        )
        approve(story, found["proposal"])
        done = until_phase(story, "added:3,4", "Done")
        assert not done.get("throttled")
        assert holding(story) == {0, 1, 2, 3, 4}
        story.settle()

        story.change(brokers=3)
        found = until_phase(story, "removed:3,4", "Proposed")
        assert len(story.uids()) == 5, "no broker leaves before it is empty"
        approve(story, found["proposal"])
        story.wait_until(lambda: len(story.uids()) == 3, "three pods")
        story.settle()
        assert holding(story) == {0, 1, 2}
    print(story.judge(load))
    assert story.events("Proposed"), "people see it in kubectl describe"
