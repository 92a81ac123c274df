"""A SparkPipeline on Kubernetes: its driver is killed, and no record is lost or duplicated."""

from __future__ import annotations

from e2e_tests.kind import visits
from e2e_tests.kind.story import Story


def test_a_driver_is_killed_and_the_table_has_every_record_once(story: Story) -> None:
    """
    1. A pipeline writes a table, and its driver is killed (visits.py).
    2. A pipeline with wrong SQL fails once, and its status names the field.
    3. The pipelines are deleted, and with them everything that they created.
    """
    visits.cluster(story)
    n = visits.driver_is_killed(story)

    wrong = {**visits.check(), "steps": [{"sql": "SELECT nothing FROM rows"}]}
    story.apply(visits.pipeline("wrong", wrong, mode="batch"))
    visits.wait(
        story,
        lambda: visits.pipeline_status(story, "wrong").get("state") == "FAILED",
        "it is refused",
    )
    (ready,) = visits.pipeline_status(story, "wrong")["conditions"]
    assert ready["message"].startswith("spec.steps[0].sql: "), ready
    assert visits.pipeline_status(story, "wrong").get("restarts", 0) == 0, (
        "trying again would not help"
    )

    visits.delete_all(story, "table", "check", "wrong")
    print(f"\n{n} records, the driver killed: each is in the table once")
