"""When a pipeline starts, and when its driver is started again; no Spark is needed for either."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from odradek_api.base import Condition
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.kafka_user.status import KafkaUserStatus
from odradek_api.parse import parse
from odradek_api.pipeline.spec import RestartPolicy
from odradek_api.pipeline.status import JobStatus, QueryProgress
from odradek_api.topic import TopicStatus
from odradek_operator.local import pipelines as local_pipelines
from odradek_operator.local.pipeline_processes import WRONG_SPEC, LocalPipeline
from odradek_operator.local.pipelines import LocalPipelines
from odradek_operator.spark.waiting import waits_for

NOON_S = 1_794_916_800.0  # 2026-11-17T12:00:00Z


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
        self._restart_at = None
        self.starts += 1
        self._process = Ended(self.codes.pop(0)) if self.codes else None  # type: ignore[assignment]

    def status(self) -> JobStatus | None:
        return self.said


def live(pipeline: Pipeline) -> int:
    """How often it was started, if time passes without end."""
    for second in range(0, 1000, 10):
        pipeline.supervise(float(second))
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
def test_restarts(
    tmp_path: Path, codes: list[int], policy: dict[str, Any], starts: int, ended: int
) -> None:
    pipeline = Pipeline(tmp_path, codes, **policy)
    assert live(pipeline) == starts
    assert pipeline.ended == ended


def test_a_driver_that_worked_begins_to_count_anew(tmp_path: Path) -> None:
    assert live(Pipeline(tmp_path, [1, 1, 1, 0], batch=5, retries=1)) == 4


def test_it_waits_before_it_tries_again(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, [1, 0], interval_seconds=30)
    pipeline.supervise(100.0)
    pipeline.supervise(129.0)
    assert pipeline.starts == 1
    pipeline.supervise(130.0)
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
    assert waits_for(pipeline(), {}, {}, {}) == "KafkaCluster default/main does not exist"
    assert waits_for(pipeline(), {key: down}, {}, {}) == "KafkaCluster default/main is not ready"
    assert waits_for(pipeline(), {key: up}, {key: {"t": awaited}}, {}) == "Topic a is not ready"
    assert waits_for(pipeline(), {key: up}, {key: {"t": made, "u": other}}, {}) == ""
    assert waits_for(pipeline(), {key: up}, {}, {}) == ""
    as_user = pipeline(user={"name": "u"})
    assert waits_for(as_user, {key: up}, {}, {}) == "KafkaUser default/u does not exist"
    waiting = KafkaUserStatus(conditions=ready("False"), secret="default/u")
    assert waits_for(as_user, {key: up}, {}, {"default/u": waiting}) == "KafkaUser u is not ready"
    usable = KafkaUserStatus(conditions=ready("True"), secret="default/u")
    assert waits_for(as_user, {key: up}, {}, {"default/u": usable}) == ""
    away = KafkaUserStatus(conditions=ready("True"), secret="other/u")
    assert "in another namespace" in waits_for(as_user, {key: up}, {}, {"default/u": away})
    assert waits_for(pipeline(suspend=True), {key: up}, {}, {}) == "spec.suspend is true"


class AtWork:
    pid = 1

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes

    def poll(self) -> int | None:
        return self.codes.pop() if self.codes else None


class Scheduled(LocalPipeline):
    """A driver that runs until `codes` has its exit code."""

    begun: ClassVar[list[float]] = []
    codes: ClassVar[list[int]] = []
    now_s: ClassVar[float] = NOON_S

    def _spawn(self) -> None:
        self._restart_at = None
        self.begun.append(self.now_s)
        self._process = AtWork(self.codes)  # type: ignore[assignment]


def test_a_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before its time; one run at a time; one for all that were missed; then it waits."""
    monkeypatch.setattr(Scheduled, "begun", [])
    monkeypatch.setattr(Scheduled, "codes", [])
    monkeypatch.setattr(Scheduled, "now_s", NOON_S)
    monkeypatch.setattr(local_pipelines, "LocalPipeline", Scheduled)
    monkeypatch.setattr(local_pipelines, "spark_missing", lambda: "")
    monkeypatch.setattr("odradek_operator.local.pipelines.time.time", lambda: Scheduled.now_s)
    given = {
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "SparkPipeline",
        "metadata": {"name": "x"},
        "spec": {"kafka": {"bootstrapServers": "a:1"}, "sources": [{"topics": ["t"]}],
                 "sink": {"console": {}}, "mode": "availableNow", "schedule": "*/10 * * * *"},
    }  # fmt: skip
    pipeline: Any = parse(given)
    pipelines = LocalPipelines(tmp_path)
    pipelines.update([pipeline], tmp_path)

    def after(minutes: int, *codes: int) -> str:
        Scheduled.now_s = NOON_S + 60 * minutes
        Scheduled.codes.extend(codes)
        for _ in range(3):
            report = pipelines.one_pass({}, {}, {})["default/x"]
        return report.waits

    assert after(0) == "the next run starts at 2026-11-17T12:10:00Z"
    assert after(9) == "the next run starts at 2026-11-17T12:10:00Z"
    assert after(10) == ""
    assert after(39) == "", "it is still at work"
    assert len(Scheduled.begun) == 1
    assert after(39, 0) == "", "and what was missed follows at once"
    assert len(Scheduled.begun) == 2
    assert after(39, 0) == "the next run starts at 2026-11-17T12:40:00Z"
    assert after(40, WRONG_SPEC) == "the next run starts at 2026-11-17T12:50:00Z"
    assert len(Scheduled.begun) == 3
