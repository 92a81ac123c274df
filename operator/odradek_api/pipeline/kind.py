"""SparkPipeline: its spec is odradek_api.pipeline's (spark-on-k8s/adr/0001), its status is ours.

The rules that CEL can say are in the CRD; `refusals` has the rest, before any driver starts.
"""

from __future__ import annotations

from msgspec import field

from odradek_api.base import Condition, Rule, Status
from odradek_api.pipeline.rules import CEL_RULES, problems
from odradek_api.pipeline.spec import SparkPipelineSpec

PIPELINE_RULES = tuple(Rule(r.cel, r.message, r.field, r.holds) for r in CEL_RULES)


class TopicLag(Status, frozen=True, kw_only=True):
    topic: str
    records: int = 0


class SparkPipelineStatus(Status, frozen=True, kw_only=True):
    observed_generation: int = 0
    conditions: list[Condition] = field(default_factory=list)
    application: str = ""  # the SparkApplication's name
    state: str = ""  # as kubeflow names them: SUBMITTED, RUNNING, COMPLETED, FAILED, …
    restarts: int = 0
    lag: list[TopicLag] = field(default_factory=list)
    lag_records: int = 0
    input_rate: float = 0.0  # records per second
    process_rate: float = 0.0
    batch: int = -1
    batch_ms: int = 0
    last_batch_time: str = ""
    last_schedule_time: str = ""  # of the run that was begun last, if there is a schedule
    next_schedule_time: str = ""


def refusals(spec: SparkPipelineSpec) -> list[tuple[str, str]]:
    """[("spec.steps[0].inputs", "…")]; nothing is asked of a spec that breaks a CEL rule."""
    if not all(rule.holds(spec, None) for rule in CEL_RULES):
        return []
    return [(f"spec.{at}", message) for at, message in problems(spec)]
