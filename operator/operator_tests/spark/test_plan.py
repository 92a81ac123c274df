"""A SparkApplication's life, step by step: states as kubeflow names them."""

from typing import Any

import pytest

from odradek_operator.spark.desired import PIPELINE_LABEL
from odradek_operator.spark.plan import FOLLOWS, Decision, Driver, decide, submission_of


def application(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"image": "i", **spec}}


class World:
    """A driver's pod and the clock; `step` is one pass."""

    def __init__(self, **spec: Any) -> None:
        self.application = application(**spec)
        self.now = Decision("")
        self.driver: Driver | None = None
        self.at_s = 1000.0
        self.states: list[str] = []
        self.submitted = 0
        self.removed = False

    def step(self) -> str:
        before = self.now.state
        self.now = decide(self.application, self.driver, self.now, self.at_s)
        assert self.now.state == before or self.now.state in FOLLOWS[before]
        if self.now.action == "submit":
            assert self.driver is None, "two drivers at once"
            self.driver = Driver("Pending")
            self.submitted += 1
        elif self.now.action == "remove driver":
            self.driver = None
        elif self.now.action == "remove application":
            self.removed = True
        self.states.append(self.now.state)
        return self.now.state

    def until(self, state: str) -> None:
        for _ in range(10):
            if self.step() == state:
                return
        raise AssertionError(self.states)

    def run(self) -> None:
        self.until("SUBMITTED")
        self.driver = Driver("Running")
        self.until("RUNNING")


def test_done() -> None:
    world = World()
    world.run()
    world.driver = Driver("Succeeded")
    world.until("COMPLETED")
    assert world.states == ["SUBMITTED", "RUNNING", "SUCCEEDING", "COMPLETED"]
    assert world.step() == "COMPLETED"
    assert world.submitted == 1


def test_failed_and_tried_again() -> None:
    world = World(restartPolicy={"type": "OnFailure", "onFailureRetries": 1,
                                 "onFailureRetryInterval": 10})  # fmt: skip
    world.run()
    world.driver = Driver("Failed", "exit code 1")
    world.until("PENDING_RERUN")
    assert world.now.message == "exit code 1"
    assert world.step() == "PENDING_RERUN", "before its time"
    assert world.now.again_in_s == 10.0
    assert world.submitted == 1
    world.at_s += 10
    world.run()
    assert world.submitted == 2
    assert world.now.attempts == 2
    world.driver = Driver("Failed", "exit code 1")
    world.until("FAILED")
    assert world.now.message == "exit code 1"


@pytest.mark.parametrize("kind", ["OnFailure", "Always"])
def test_a_refused_spec_is_not_tried_again(kind: str) -> None:
    """Exit code 2 of a pipeline's driver; of another program it is a failure as any other."""
    for labels, end in (({PIPELINE_LABEL: "x"}, "FAILED"), ({}, "PENDING_RERUN")):
        world = World(restartPolicy={"type": kind, "onFailureRetries": 9})
        world.application["metadata"]["labels"] = labels
        world.run()
        world.driver = Driver("Failed", "spec.sources[0].topics[0]: …", exit_code=2)
        world.until(end)
        assert world.now.message.startswith("spec.sources[0]")
        assert world.submitted == 1


def test_never_again() -> None:
    world = World()
    world.run()
    world.driver = None
    world.until("FAILED")
    assert world.now.message == "the driver pod was deleted"


def test_always_again() -> None:
    world = World(restartPolicy={"type": "Always", "onFailureRetryInterval": 1})
    world.run()
    world.driver = Driver("Succeeded")
    world.until("PENDING_RERUN")
    world.at_s += 1
    world.run()
    assert world.submitted == 2


def test_another_spec_is_another_run() -> None:
    world = World()
    world.run()
    world.application = application(image="j")
    world.until("SUBMITTED")
    assert world.states[2:] == ["INVALIDATING", "PENDING_RERUN", "SUBMITTED"]
    assert world.now.attempts == 1
    assert world.now.submission == submission_of(world.application)


@pytest.mark.parametrize("state", ["SUBMITTED", "RUNNING", "COMPLETED", "FAILED"])
def test_suspended_and_resumed(state: str) -> None:
    world = World()
    world.run()
    if state in ("COMPLETED", "FAILED"):
        world.driver = Driver({"COMPLETED": "Succeeded", "FAILED": "Failed"}[state])
        world.until(state)
    world.application["spec"]["suspend"] = True
    world.until("SUSPENDED")
    assert world.driver is None
    assert world.step() == "SUSPENDED"
    world.application["spec"]["suspend"] = False
    world.run()
    assert world.submitted == 2


def test_a_restarted_operator_carries_out_the_pending_step() -> None:
    world = World()
    world.step()
    world.driver = None
    assert world.step() == "SUBMITTED"
    assert world.submitted == 2
    assert world.now.attempts == 1


def test_time_to_live() -> None:
    world = World(timeToLiveSeconds=60)
    world.run()
    world.driver = Driver("Succeeded")
    world.until("COMPLETED")
    world.at_s += 59
    world.step()
    assert not world.removed
    world.at_s += 1
    world.step()
    assert world.removed
