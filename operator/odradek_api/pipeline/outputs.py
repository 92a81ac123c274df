"""The sinks of a SparkPipeline in one form, whether it has `sink` or `sinks`.

    outputs(spec) -> [Output(at="sinks[0]", query="alerts", sink=…, view="hot")]

Each output is one streaming query. Its name is also the name of its checkpoint's directory.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_api.pipeline.sinks import Sink
from odradek_api.pipeline.spec import SparkPipelineSpec

MAIN = "main"  # the query of `sink`
DEAD_LETTER = "dead-letter"  # a query too; the hyphen keeps it apart from names of sinks


class Output(NamedTuple):
    at: str  # the field, relative to spec: sink, sinks[1]
    query: str
    sink: Sink
    view: str = ""  # that is written; empty: the last step's result


def outputs(spec: SparkPipelineSpec) -> list[Output]:
    """None for a project of declarative pipelines."""
    if spec.sinks:
        return [
            Output(f"sinks[{n}]", sink.name, sink, sink.from_ or "")
            for n, sink in enumerate(spec.sinks)
        ]
    return [] if spec.sdp is not None else [Output("sink", MAIN, spec.sink)]
