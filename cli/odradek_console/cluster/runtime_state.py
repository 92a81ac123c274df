"""Plans and pipelines, as whatever runs the cluster reports them: one model for the pages.

The local runtime writes a status file (local_state.py); the operator on Kubernetes writes the
status of its resources (kubernetes_state.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from odradek_api.base import Condition
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_api.topic import TopicStatus
from odradek_operator.local.steering import SteeringAction as SteeringAction

if TYPE_CHECKING:
    from odradek_api.pipeline.spec import SparkPipelineSpec

READY, PROGRESSING = "Ready", "Progressing"
CLUSTER, PIPELINE = "KafkaCluster", "SparkPipeline"


class UnreadableStateError(Exception):
    """The state cannot be read; a sentence for people."""


class PlanError(Exception):
    """A sentence per problem of the manifests."""


class SteerError(Exception):
    """Why an action cannot be carried out; a sentence for people."""


@dataclass(frozen=True)
class ClusterPlan:
    """A KafkaCluster: what is done now and why, and what has to be done after it."""

    key: str  # "default/main"
    status: KafkaClusterStatus
    steps: list[str] = field(default_factory=list)  # in this order
    whole: bool = False  # whether `steps` begin with what is under way; otherwise they follow it
    failures: list[str] = field(default_factory=list)
    topics: Mapping[str, TopicStatus] = field(default_factory=dict)
    rebalances: Mapping[str, KafkaRebalanceStatus] = field(default_factory=dict)
    unseen: str = ""  # a sentence, if the status is older than the spec

    def condition(self, kind: str) -> Condition | None:
        return next((one for one in self.status.conditions if one.type == kind), None)

    @property
    def doing(self) -> Condition | None:
        """Progressing, while something is to be done; its message is the step that is due."""
        found = self.condition(PROGRESSING)
        return found if found is not None and found.status == "True" else None

    @property
    def paused(self) -> bool:
        found = self.condition(PROGRESSING)
        return found is not None and found.reason == "Paused"

    @property
    def topics_not_ready(self) -> dict[str, Condition]:
        return {
            key: one
            for key, status in self.topics.items()
            for one in status.conditions
            if one.type == READY and one.status != "True"
        }


@dataclass(frozen=True)
class PipelineState:
    """A SparkPipeline: its spec, if it is known, and the progress of this run."""

    key: str
    state: str  # "Running", "Waiting", "Failed", …
    spec: SparkPipelineSpec | None = None
    message: str = ""  # what it waits for, or why it failed
    restarts: int = 0
    batch: int = -1
    input_rate: float = 0.0  # records per second that arrived
    process_rate: float = 0.0  # records per second while a batch was running
    batch_ms: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)  # topic → records that are not read yet
    rows_in: int = 0
    rows_out: int = -1  # -1: the sink does not say
    dead_letters: int = 0
    late_rows: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str = ""
    checkpoint: str = ""  # when the last batch was committed

    @property
    def suspended(self) -> bool:
        return self.spec is not None and self.spec.suspend

    @property
    def lag_total(self) -> int:
        return sum(self.lag.values())


@dataclass(frozen=True)
class RuntimeState:
    clusters: list[ClusterPlan] = field(default_factory=list)
    pipelines: list[PipelineState] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warning: str = ""  # why the state may be old


class RuntimeSource(Protocol):
    """Where the state is from. Its methods block."""

    @property
    def title(self) -> str: ...

    @property
    def how_to_start(self) -> str:
        """What to do if there is no state."""

    @property
    def plans_manifests(self) -> bool:
        """Whether `plan` works here."""

    def read(self) -> RuntimeState | None:
        """None: there is nothing. Raises UnreadableStateError."""

    def plan(self, manifests: str) -> RuntimeState:
        """What applying these manifests would do. Raises PlanError. Changes nothing."""

    def may_steer(self) -> frozenset[str]:
        """The kinds that `steer` can change here, as far as it is known."""

    def steer(self, action: SteeringAction, key: str) -> None:
        """Of the KafkaCluster or SparkPipeline with this key. Raises SteerError."""


def remaining_steps(status: KafkaClusterStatus) -> list[str]:
    """What a status says about the steps after the one that is under way."""
    rolling = status.rolling
    busy = set(rolling.brokers) if rolling is not None else set()
    controllers = [
        f"restart controller {one.id}: {one.pending}"
        for one in status.controllers
        if one.pending and one.id not in busy
    ]
    leaving = [f"remove broker {one.id}" for one in status.brokers if one.pending == "leaving"]
    restarts = [
        f"restart broker {one.id}: {one.pending}"
        for one in status.brokers
        if one.pending not in ("", "leaving") and one.id not in busy
    ]
    return controllers + restarts + leaving
