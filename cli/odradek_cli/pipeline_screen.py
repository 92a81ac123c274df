"""How pipelines are doing, in the terminal: a row for each query, live or as lines of a log.

`odradek pipeline run` and `status`, and `odradek local status`, show the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek_cli.output import remarks

if TYPE_CHECKING:
    from odradek_api.pipeline.status import JobStatus, QueryProgress
    from odradek_operator.local.pipeline_processes import LocalPipeline
    from odradek_operator.local.pipelines import PipelineReport

COLUMNS = ["pipeline", "query", "state", ">batch", ">in/s", ">done/s", ">batch ms", ">lag",
           ">rows out", "watermark", "last checkpoint", ">restarts"]  # fmt: skip


class PipelineScreen:
    """A live table on a terminal; elsewhere a line whenever a batch is done."""

    def __init__(self) -> None:
        from rich.live import Live

        self._console = remarks()
        self._live = Live(console=self._console, refresh_per_second=4)
        self._said: Any = None
        if self._console.is_terminal:
            self._live.start()

    def close(self) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def show(self, key: str, process: LocalPipeline, said: JobStatus | None) -> None:
        from odradek_operator.local.pipelines import PipelineReport

        report = PipelineReport(pid=process.pid, restarts=process.restarts, status=said)
        rows = pipeline_rows(key, report)
        if self._console.is_terminal:
            self._live.update(_table(rows))
        elif rows != self._said:
            self._said = rows
            for row in rows:
                self._console.print(labelled(row), markup=False, soft_wrap=True)


def labelled(row: list[str]) -> str:
    """A row as a line of a log: numbers with the names of their columns."""
    named = zip(COLUMNS[3:], row[3:], strict=True)
    return " ".join(filter(None, row[:3])) + "".join(
        f", {column.lstrip('>')} {text}" for column, text in named if text
    )


def _table(rows: list[list[str]]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left")
    for row in rows:
        table.add_row(*row)
    return table


def failures(reports: Mapping[str, PipelineReport]) -> list[str]:
    """Why pipelines failed, one line for each."""
    said = {key: one.status for key, one in reports.items() if one.status is not None}
    return [f"SparkPipeline {key}: {s.field + ': ' if s.field else ''}{s.message}"
            for key, s in said.items() if s.message]  # fmt: skip


def pipeline_rows(key: str, report: PipelineReport) -> list[list[str]]:
    """A row per query, or per flow with spec.sdp; one row with the state before there are any."""
    said = report.status
    if said is None or not (said.queries or said.flows):
        state = report.waits or (said.state if said else "Starting")
        return [[key, "", state, *[""] * (len(COLUMNS) - 4), str(report.restarts)]]
    states = {flow.name: flow.state for flow in said.flows} or dict.fromkeys(
        said.queries, said.state
    )
    return [
        [key, name, state, *_progress(said.queries.get(name)), str(report.restarts)]
        for name, state in states.items()
    ]


def _progress(query: QueryProgress | None) -> list[str]:
    """The columns from batch to checkpoint; empty for a flow that is no streaming query."""
    if query is None:
        return [""] * (len(COLUMNS) - 4)
    return [
        str(query.batch),
        f"{query.input_rate:,.0f}",
        f"{query.process_rate:,.0f}",
        str(query.batch_ms),
        f"{sum(query.lag.values()):,}",
        f"{query.rows_out:,}" if query.rows_out >= 0 else "",
        query.watermark,
        query.checkpoint,
    ]
