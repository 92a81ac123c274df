"""When a pipeline starts, and when its driver is started again; no Spark is needed for either."""

from pathlib import Path
from typing import Any

import pytest

from odradek_operator.api.base import Condition
from odradek_operator.api.kafka_cluster import KafkaClusterStatus
from odradek_operator.api.parse import parse
from odradek_operator.api.topic import TopicStatus
from odradek_operator.apply.local_pipelines import waits_for
from odradek_operator.cluster.local.pipelines import WRONG_SPEC, LocalPipeline
from odradek_pipeline.spec import RestartPolicy
from odradek_pipeline.status import JobStatus, QueryProgress


class Ended:
    """A process that is over."""

    pid = 1

    def __init__(self, code: int) -> None:
        self.code = code

    def poll(self) -> int:
        return self.code


class Pipeline(LocalPipeline):
    """Drivers that end at once, one after the other, with these codes."""

    def __init__(self, directory: Path, codes: list[int], batch: int = -1, **policy: Any) -> None:
        super().__init__(directory, RestartPolicy(**policy))
        self.codes = codes
        self.starts = 0
        self.said = JobStatus(pipeline="x", state="Failed",
                              queries={"main": QueryProgress(batch=batch)})  # fmt: skip
        self._spawn()

    def _spawn(self) -> None:
        self._again_at = None
        self.starts += 1
        self._process = Ended(self.codes.pop(0)) if self.codes else None  # type: ignore[assignment]

    def status(self) -> JobStatus | None:
        return self.said


def live(pipeline: Pipeline) -> int:
    """How often it was started, if time passes without end."""
    for second in range(0, 1000, 10):
        pipeline.look(float(second))
    return pipeline.starts


@pytest.mark.parametrize(
    ("codes", "policy", "starts", "ended"),
    [
        ([0], {}, 1, 0),
        ([1, 0], {}, 2, 0),
        ([1, 1, 1], {"retries": 1}, 2, 1),
        ([1], {"type": "Never"}, 1, 1),
        ([WRONG_SPEC, 0], {}, 1, WRONG_SPEC),
        ([0, 0, WRONG_SPEC], {"type": "Always"}, 3, WRONG_SPEC),
    ],
)
def test_restarts(tmp_path: Path, codes: list[int], policy: Any, starts: int, ended: int) -> None:
    pipeline = Pipeline(tmp_path, codes, **policy)
    assert live(pipeline) == starts
    assert pipeline.ended == ended


def test_a_driver_that_worked_begins_to_count_anew(tmp_path: Path) -> None:
    assert live(Pipeline(tmp_path, [1, 1, 1, 0], batch=5, retries=1)) == 4


def test_it_waits_before_it_tries_again(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, [1, 0], interval_seconds=30)
    pipeline.look(100.0)
    pipeline.look(129.0)
    assert pipeline.starts == 1
    pipeline.look(130.0)
    assert pipeline.starts == 2


def pipeline(**spec: Any) -> Any:
    document = {
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "SparkPipeline",
        "metadata": {"name": "x"},
        "spec": {"cluster": {"name": "main"}, "sources": [{"topics": ["a"]}],
                 "sink": {"console": {}}, **spec},
    }  # fmt: skip
    return parse(document)


def ready(status: str) -> list[Condition]:
    return [Condition(type="Ready", status=status, reason="x")]


def test_what_a_pipeline_waits_for() -> None:
    up = KafkaClusterStatus(bootstrap_servers="m:1", conditions=ready("True"))
    down = KafkaClusterStatus(bootstrap_servers="m:1", conditions=ready("False"))
    made = TopicStatus(topic_name="a", conditions=ready("True"))
    awaited = TopicStatus(topic_name="a", conditions=ready("False"))
    other = TopicStatus(topic_name="b", conditions=ready("False"))
    key = "default/main"
    assert waits_for(pipeline(), {}, {}) == "there is no KafkaCluster default/main"
    assert waits_for(pipeline(), {key: down}, {}) == "KafkaCluster default/main is not ready"
    assert waits_for(pipeline(), {key: up}, {key: {"t": awaited}}) == "topic a is not ready"
    assert waits_for(pipeline(), {key: up}, {key: {"t": made, "u": other}}) == ""
    assert waits_for(pipeline(), {key: up}, {}) == ""
    assert waits_for(pipeline(suspend=True), {key: up}, {}) == "it is suspended"
