"""Writes charts/odradek/files/dashboards: `python -m odradek_e2e.monitoring`, in `make gen`."""

from odradek_e2e.monitoring.dashboards import DASHBOARDS
from odradek_e2e.monitoring.grafana import DIRECTORY, file_text

if __name__ == "__main__":
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        (DIRECTORY / f"{dashboard.name}.json").write_text(file_text(dashboard))
