"""kubeflow's Spark operator runs SparkPipelines: the same story as with ours, schedules, suspend.

It is built from its Go module and installed with its own chart (odradek_e2e/kubeflow.py). Our
operator is in mode `auto`, and leaves SparkApplications to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e_tests.kind import visits
from e2e_tests.kind.conftest import install_operator
from e2e_tests.kind.story import Story
from odradek_e2e import kubeflow
from odradek_e2e.kind.places import kubeconfig

LAUNCHED = "sparkoperator.k8s.io/launched-by-spark-operator"  # a label that only kubeflow sets


@pytest.fixture
def kubeflows(story: Story) -> Iterator[Story]:
    kubeflow.install(kubeconfig())
    install_operator("auto")
    yield story
    kubeflow.uninstall(kubeconfig())
    install_operator("native")


def test_kubeflows_operator_runs_pipelines(kubeflows: Story) -> None:
    """
    1. Driver and executor write a table, and the driver is killed (visits.py).
    2. The pipeline is suspended, which ends its driver, and resumed: it continues in one pod, from
       its checkpoint; nothing is read twice.
    3. A pipeline with a schedule runs, and names its next run.
    4. The pipelines are deleted, and with them everything that they created.
    """
    story = kubeflows
    visits.cluster(story)
    before = visits.driver_is_killed(story)
    assert _driver(story)["metadata"]["labels"][LAUNCHED] == "true"

    story.patch("SparkPipeline", "table", {"spec": {"suspend": True}})
    story.wait_until(lambda: visits.driver_uid(story) == "", "the driver has ended")
    waiting = visits.pipeline_status(story, "table")["conditions"][0]["message"]
    assert waiting == "spec.suspend is true"
    with visits.written(story, "visits", first=before) as sent:
        story.wait_until(lambda: len(sent) > 100, "records are written meanwhile")
    story.patch("SparkPipeline", "table", {"spec": {"suspend": False}})
    visits.wait_until_all_is_read(story)
    n = before + len(sent)
    story.delete_and_wait("SparkPipeline", "check")
    visits.assert_each_counted_once(story, n)

    story.apply(visits.pipeline("nightly", visits.check(), mode="batch", schedule="* * * * *"))
    visits.wait(story, lambda: _completed(story, "nightly"), "the scheduled run is completed")

    visits.delete_all(story, "table", "check", "nightly")
    print(f"\n{n} records, the driver killed, suspended and resumed: each is in the table once")


def _driver(story: Story) -> dict[str, Any]:
    return visits.driver_and_executor(story)["driver"]


def _completed(story: Story, name: str) -> bool:
    status = visits.pipeline_status(story, name)
    return bool(status.get("lastScheduleTime") and status.get("nextScheduleTime")) and (
        status.get("state") == "COMPLETED"
    )
