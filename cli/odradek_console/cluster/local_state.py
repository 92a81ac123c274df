"""Plan and pipelines of a local runtime, from its status file and its manifests.

    found = LocalState(Path("examples/quickstart"), state).read()    # None: none has run there

With manifests given, `plan` says what applying others would do. Both change nothing. `steer` asks
the runtime for something; the manifests stay as they are.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from odradek_api.base import InvalidManifestError
from odradek_api.parse import load
from odradek_api.pipeline.outputs import DEAD_LETTER
from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_api.pipeline.status import QueryProgress, of_sinks
from odradek_console.cluster.runtime_state import (
    CLUSTER,
    PIPELINE,
    ClusterPlan,
    PipelineState,
    PlanError,
    RuntimeState,
    SteerError,
    SteeringAction,
)
from odradek_operator.local import steering
from odradek_operator.local.pipelines import PipelineReport
from odradek_operator.local.report import Report
from odradek_operator.local.runtime import LocalRuntime, read_report, running_pid

MANIFEST_BYTES_MAX = 512 * 1024
STOPPED = "Stopped"


@dataclass(frozen=True)
class LocalState:
    manifests: Path
    state: Path

    @property
    def title(self) -> str:
        return f"Local runtime of {self.manifests}"

    @property
    def how_to_start(self) -> str:
        return "No local runtime has run here. Start one: odradek local up -f DIR."

    @property
    def plans_manifests(self) -> bool:
        return True

    def read(self) -> RuntimeState | None:
        report = read_report(self.state)
        if report is None:
            return None
        stopped = "The runtime does not run now; this is its last report."
        warning = "" if running_pid(self.state) is not None else stopped
        return _state(report, _specs(self.manifests, self.state), warning)

    def may_steer(self) -> frozenset[str]:
        is_running = running_pid(self.state) is not None
        return frozenset((CLUSTER, PIPELINE)) if is_running else frozenset()

    def steer(self, action: SteeringAction, key: str) -> None:
        if running_pid(self.state) is None:
            raise SteerError("the runtime does not run now")
        try:
            steering.steer(self.state, action, key)
        except OSError as error:
            raise SteerError(f"{self.state}: {error.strerror}") from None

    def plan(self, manifests: str) -> RuntimeState:
        """The local runtime's plan for these manifests, given its present state."""
        if len(manifests.encode()) > MANIFEST_BYTES_MAX:
            raise PlanError(f"the manifests are larger than {MANIFEST_BYTES_MAX // 1024} KB")
        with tempfile.TemporaryDirectory(prefix="odradek-console-") as directory:
            path = Path(directory) / "pasted.yaml"
            path.write_text(manifests)
            runtime = LocalRuntime([path], self.state)
            try:
                return _state(runtime.plan(), {}, "")
            except InvalidManifestError as refused:
                raise PlanError(str(refused)) from None
            finally:
                for cluster in runtime.clusters.values():
                    cluster.close()


def _state(report: Report, specs: dict[str, SparkPipelineSpec], warning: str) -> RuntimeState:
    clusters = [
        ClusterPlan(key, one.status, one.plan, True, one.failures, one.topics, one.rebalances)
        for key, one in report.clusters.items()
    ]
    pipelines = [_pipeline(key, one, specs.get(key)) for key, one in report.pipelines.items()]
    return RuntimeState(clusters, pipelines, report.problems, warning)


def _specs(manifests: Path, state: Path) -> dict[str, SparkPipelineSpec]:
    """As the files are now; none of them if one is invalid, which is among the problems."""
    try:
        found = steering.steered(load([manifests]), steering.read_steering(state))
        return {one.key: one.spec for one in found if one.kind == PIPELINE}
    except InvalidManifestError:
        return {}


def _pipeline(key: str, report: PipelineReport, spec: SparkPipelineSpec | None) -> PipelineState:
    said = report.status
    if spec is not None and spec.suspend:
        return PipelineState(key, STOPPED, spec, restarts=report.restarts)
    if said is None:
        state = "Waiting" if report.waits else "Starting"
        return PipelineState(key, state, spec, report.waits, report.restarts)
    main = of_sinks(said.queries) or QueryProgress()
    dead = said.queries.get(DEAD_LETTER)
    return PipelineState(
        key,
        "Waiting" if report.waits else said.state,
        spec,
        message=report.waits or (f"{said.field}: {said.message}" if said.field else said.message),
        restarts=report.restarts,
        batch=main.batch,
        input_rate=main.input_rate,
        process_rate=main.process_rate,
        batch_ms=main.batch_ms,
        lag=main.lag,
        rows_in=main.rows,
        rows_out=main.rows_out,
        dead_letters=max(0, dead.rows_out) if dead is not None else 0,
        late_rows=main.late_rows,
        state_rows=main.state_rows,
        state_bytes=main.state_bytes,
        watermark=main.watermark,
        checkpoint=main.checkpoint,
    )
