"""Restarts as bars over time, a row per node: SVG that the server draws."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

from odradek_api.kafka_cluster.status import RestartStatus

WIDTH, ROW, TOP, BOTTOM, LEFT, RIGHT = 640, 24, 6, 22, 84, 10
SPAN_MIN_S = 300
BAR_MIN = 4.0  # a restart of a second can be seen


def restart_timeline(restarts: Sequence[RestartStatus], now_ms: int) -> Markup:
    """From the oldest restart to now. Each bar has what happened as its title."""
    now_s = now_ms // 1000
    times = [(one, _seconds(one.began), _seconds(one.ready) or now_s) for one in restarts]
    known = [(one, began, ready) for one, began, ready in times if began]
    oldest = min((began for _, began, _ in known), default=now_s)
    span = max(now_s - oldest, SPAN_MIN_S)
    nodes = sorted({one.node for one, _, _ in known})
    height = TOP + ROW * len(nodes) + BOTTOM

    def x(at_s: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * max(at_s - (now_s - span), 0) / span

    parts = [
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Restarts of {len(nodes)} nodes; the table below has them all">'
    ]
    for row, node in enumerate(nodes):
        y = TOP + ROW * row
        parts.append(
            f'<text class="axis" x="{LEFT - 8}" y="{y + 16}" text-anchor="end">node {node}</text>'
            f'<line class="grid" x1="{LEFT}" y1="{y + 12}" x2="{WIDTH - RIGHT}" y2="{y + 12}"/>'
        )
    for one, began, ready in known:
        y = TOP + ROW * nodes.index(one.node)
        width = max(x(ready) - x(began), BAR_MIN)
        left = min(x(began), WIDTH - RIGHT - width)
        parts.append(
            f'<rect class="restart {_level(one)}" x="{left:.1f}" y="{y + 4}" '
            f'width="{width:.1f}" height="16" rx="3"><title>{escape(_said(one))}</title></rect>'
        )
    for quarter in range(5):
        at = now_s - span * (4 - quarter) // 4
        anchor = ("start", "middle", "middle", "middle", "end")[quarter]
        moment = datetime.fromtimestamp(at, UTC)
        text = moment.strftime("%H:%M" if span < 86_400 else "%m-%d %H:%M")
        parts.append(
            f'<text class="axis" x="{x(at):.1f}" y="{height - 6}" text-anchor="{anchor}">{text}'
            "</text>"
        )
    return Markup("".join([*parts, "</svg>"]))


def away_text(one: RestartStatus, now_ms: int) -> str:
    """How long it served nobody: "4 s"; while it is away: "240 s so far"."""
    began, ready = _seconds(one.began), _seconds(one.ready)
    if not began:
        return "–"
    return f"{max(ready - began, 0)} s" if ready else f"{max(now_ms // 1000 - began, 0)} s so far"


def _level(one: RestartStatus) -> str:
    if one.unavailable:
        return "refused"
    return "planned" if one.planned else "unplanned"


def _said(one: RestartStatus) -> str:
    refused = f"; not writable: {', '.join(one.unavailable)}" if one.unavailable else ""
    return f"node {one.node}, {one.began}: {one.reason}{refused}"


def _seconds(instant: str) -> int:
    """0 for a time that is not known."""
    try:
        return int(datetime.fromisoformat(instant).timestamp())
    except ValueError:
        return 0
