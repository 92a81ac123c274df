"""What applying manifests would do with their pipelines on this machine, for `odradek plan`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek_api.base import Resource
    from odradek_operator.local.pipelines import PipelineReport


def pipeline_plans(
    resources: Iterable[Resource[Any]], running: Mapping[str, PipelineReport], state: Path
) -> dict[str, list[str]]:
    """Pipeline → the actions; `running` is the report of the runtime, empty if there is none."""
    wanted = {one.key: one for one in resources if one.kind == "SparkPipeline"}
    at_work = {key for key, one in running.items() if one.pid is not None}
    plans = {key: _plan(one, key in at_work, state) for key, one in wanted.items()}
    stopped = sorted(at_work - wanted.keys())
    return plans | {key: ["stop: it is not in the manifests any more"] for key in stopped}


def _plan(wanted: Resource[Any], at_work: bool, state: Path) -> list[str]:
    spec = wanted.spec
    if spec.suspend:
        return ["stop: spec.suspend"] if at_work else []
    if not at_work:
        return [f"run when spec.schedule says so: {spec.schedule}" if spec.schedule
                else "start when its clusters and topics are ready"]  # fmt: skip
    if _spec_at_work(wanted, state) != spec:
        return ["restart from its checkpoint: the spec changed"]
    return []


def _spec_at_work(wanted: Resource[Any], state: Path) -> object:
    """Of the driver's job.json; None if it cannot be read."""
    import msgspec

    from odradek_api.pipeline.job import Job

    path = state / f"pipeline.{wanted.namespace}.{wanted.name}" / "job.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Job).spec
    except (OSError, msgspec.DecodeError):
        return None
