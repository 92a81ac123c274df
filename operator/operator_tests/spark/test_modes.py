"""Which operator runs SparkApplications."""

import pytest

from odradek_operator.spark.modes import Mode, Runner, runner

OURS = ["sparkapplications", "sparkapplications/status"]
KUBEFLOW = [*OURS, "scheduledsparkapplications"]


@pytest.mark.parametrize(
    ("mode", "served", "expected"),
    [
        ("auto", OURS, "native"),
        ("auto", KUBEFLOW, "kubeflow"),
        ("auto", [], ""),
        ("native", KUBEFLOW, "native"),
        ("kubeflow", OURS, "kubeflow"),
        ("native", [], ""),
        ("off", KUBEFLOW, ""),
    ],
)
def test_who_runs_them(mode: Mode, served: list[str], expected: Runner) -> None:
    assert runner(mode, served) == expected
