"""The report about a broker that ended, from its pod's exit code and termination message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from lightkube.resources.core_v1 import Pod

from odradek_operator.kafka.observed import Phase
from odradek_operator.kubernetes.pods import ended_of, phase_of

LOG = """2026-11-18 00:00:00 ERROR odradek_broker.log: write to orders-0 failed
odradek: log directory /var/lib/odradek/data-0/log: no space left on device
"""
PAUSE = "back-off 20s restarting failed container=broker pod=main-a-0"
WAITING: dict[str, Any] = {"waiting": {"reason": "CrashLoopBackOff", "message": PAUSE}}


def pod(
    *, ready: bool = False, since: str = "", restarts: int = 1, code: int = 75, **state: Any
) -> Pod:
    ended = {"terminated": {"exitCode": code, "message": LOG, "reason": "Error"}}
    made = Pod.from_dict(
        {
            "metadata": {
                "name": "main-a-0",
                "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True" if ready else "False",
                     "lastTransitionTime": since or None},
                ],
                "containerStatuses": [
                    {
                        "name": "broker", "image": "i", "imageID": "i", "ready": ready,
                        "restartCount": restarts, "lastState": ended, "state": state,
                    }
                ],
            },
        }
    )  # fmt: skip
    assert isinstance(made, Pod)
    return made


def test_the_first_end_for_storage_says_enough() -> None:
    phase, _, detail = phase_of(pod(**WAITING), 0)
    assert phase is Phase.CRASHED
    assert detail == (
        "it ended with exit code 75: odradek: log directory /var/lib/odradek/data-0/log: no space "
        "left on device; Kubernetes backs off 20s before it starts it again"
    )
    found = ended_of(pod(**WAITING))
    assert found is not None
    assert (found.for_storage, found.words) == (True, detail)


@pytest.mark.parametrize(("restarts", "expected"), [(1, Phase.STARTING), (2, Phase.CRASHED)])
def test_one_end_for_another_reason_is_no_crash_loop(restarts: int, expected: Phase) -> None:
    found = pod(restarts=restarts, code=1, running={})
    assert phase_of(found, 0)[0] is expected
    ended = ended_of(found)
    assert ended is not None
    assert not ended.for_storage


def test_one_that_waits_for_room_after_its_start_says_so() -> None:
    phase, _, detail = phase_of(pod(running={"startedAt": "2026-11-18T00:00:00Z"}), 0)
    assert phase is Phase.CRASHED
    assert detail.endswith("no space left on device; it was started again and is not ready yet")


def test_several_ends_are_counted() -> None:
    assert phase_of(pod(restarts=5, **WAITING), 0)[2].startswith(
        "it ended 5 times, last with exit code 75: odradek: log directory"
    )


def test_one_that_is_ready_again_has_recovered() -> None:
    assert phase_of(pod(ready=True), 0)[0] is Phase.READY
    assert ended_of(pod(ready=True)) is None


def test_a_pod_that_was_ready_after_that_end_failed_for_another_reason() -> None:
    """Because space is low, for example: the earlier exit is not the reason."""
    found = pod(running={"startedAt": "2026-11-18T00:00:00Z"}, since="2026-11-18T05:00:00Z")
    assert phase_of(found, 0)[0] is Phase.STARTING
    assert ended_of(found) is None
