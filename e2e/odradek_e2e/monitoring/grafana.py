"""A dashboard as Grafana imports it, with variables for the data source and the cluster.

    file_text(Dashboard("kafka-health", "Kafka: is it healthy?", [Panel("Offline", [Query("…")])]))

Queries contain SELECT where the chosen namespace and cluster belong, or PIPELINE where the chosen
pipeline does: `sum(kafka_brokers{SELECT})`, `odradek_pipeline_ready{PIPELINE}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[3] / "charts" / "odradek" / "files" / "dashboards"
SELECT = 'namespace=~"$namespace",cluster=~"$cluster"'
PIPELINE = 'pipeline=~"$pipeline"'
COLUMNS = 24  # of Grafana's grid
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Query:
    """A query of Prometheus; the legend may contain its labels: `{{topic}}`."""

    expression: str
    legend: str = ""

    @property
    def text(self) -> str:
        """As Grafana sends it, with its variables."""
        return self.expression.replace("SELECT", SELECT).replace("PIPELINE", PIPELINE)


@dataclass(frozen=True)
class Panel:
    """A plot, or a single number."""

    title: str
    queries: Sequence[Query]
    unit: str = "short"  # Grafana's names: short, Bps, ms, percentunit
    help: str = ""
    stat: bool = False  # one number instead of a plot
    red_from: float | None = None  # a number at or above this is shown in red


@dataclass(frozen=True)
class Dashboard:
    """Plots that answer one question; two in a row, or four numbers."""

    name: str  # of its file, and its id in Grafana
    title: str
    panels: Sequence[Panel]
    of_pipelines: bool = False  # its queries have PIPELINE instead of SELECT


def file_text(dashboard: Dashboard) -> str:
    return json.dumps(_dashboard(dashboard), indent=1, ensure_ascii=False) + "\n"


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    variables = [
        _variable("namespace", "label_values(kafka_brokers, namespace)"),
        _variable("cluster", 'label_values(kafka_brokers{namespace=~"$namespace"}, cluster)'),
    ]
    if dashboard.of_pipelines:
        variables = [_variable("pipeline", "label_values(odradek_pipeline_ready, pipeline)")]
    return {
        "uid": f"odradek-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["kafka", "odradek"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus"},
            *variables,
        ]},
        "panels": list(_placed(dashboard.panels)),
    }  # fmt: skip


def _variable(name: str, query: str) -> dict[str, Any]:
    """Brokers without the label are selected as well: `.*` matches an absent label."""
    return {
        "name": name, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2,
        "includeAll": True, "allValue": ".*", "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    x = y = row_height = 0
    for number, panel in enumerate(panels, 1):
        width, height = (6, 4) if panel.stat else (12, 8)
        if x + width > COLUMNS or (x and height != row_height):
            x, y = 0, y + row_height
        row_height = height
        yield _panel(number, panel) | {"gridPos": {"x": x, "y": y, "w": width, "h": height}}
        x += width


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.stat:
        defaults |= {"thresholds": {"mode": "absolute", "steps": steps}}
    return {
        "id": number,
        "title": panel.title,
        "description": panel.help,
        "type": "stat" if panel.stat else "timeseries",
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + n), "expr": query.text, "legendFormat": query.legend}
            for n, query in enumerate(panel.queries)
        ],
    }
