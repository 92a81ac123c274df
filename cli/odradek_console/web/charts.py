"""Charts as SVG that the server draws: no script, and no style attributes (CSP)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

Points = Sequence[tuple[int, float]]

WIDTH, HEIGHT = 640, 150
LEFT, BOTTOM, TOP, RIGHT = 46, 20, 10, 8
SPAN_MS = 3_600_000
SPAN_MS_MIN = 300_000  # a console that has just started shows five minutes, and then more


def line_chart(
    label: str, series: Sequence[tuple[str, Points]], now_ms: int, unit: str = ""
) -> Markup:
    """The last hour of a few series, with axes and a title that screen readers read."""
    top = _nice(max((value for _, points in series for _, value in points), default=0.0))
    oldest = min((points[0][0] for _, points in series if points), default=now_ms)
    span_ms = min(max(now_ms - oldest, SPAN_MS_MIN), SPAN_MS)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(_spoken(label, series, unit))}">'
    ]
    for step in range(3):
        y = _y(top * step / 2, top)
        parts.append(
            f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
            f'<text class="axis" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">'
            f"{short(top * step / 2)}</text>"
        )
    for quarter in range(5):
        at = now_ms - span_ms * (4 - quarter) // 4
        x = _x(at, now_ms, span_ms)
        anchor = ("start", "middle", "middle", "middle", "end")[quarter]
        text = datetime.fromtimestamp(at / 1000, UTC).strftime("%H:%M")
        parts.append(
            f'<text class="axis" x="{x:.1f}" y="{HEIGHT - 5}" text-anchor="{anchor}">{text}</text>'
        )
    for index, (_, points) in enumerate(series):
        placed = [(_x(t, now_ms, span_ms), _y(v, top)) for t, v in points if now_ms - t <= span_ms]
        if not placed:
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        if len(series) == 1 and len(placed) > 1:
            base = _y(0, top)
            parts.append(
                f'<polygon class="area" points="{placed[0][0]:.1f},{base:.1f} {path} '
                f'{placed[-1][0]:.1f},{base:.1f}"/>'
            )
        parts.append(f'<polyline class="line s{index % 6}" points="{path}"/>')
        if len(placed) == 1:
            parts.append(f'<circle class="dot s{index % 6}" cx="{placed[0][0]:.1f}" '
                         f'cy="{placed[0][1]:.1f}" r="2.5"/>')  # fmt: skip
    if not any(points for _, points in series):
        parts.append(
            f'<text class="axis" x="{WIDTH // 2}" y="{HEIGHT // 2}" text-anchor="middle">'
            "the first points come within 20 seconds</text>"
        )
    parts.append("</svg>")
    return Markup("".join(parts))


def spark(points: Points, label: str) -> Markup:
    """A line as high as text, for a row of a table."""
    if len(points) < 2:
        return Markup('<svg class="spark" viewBox="0 0 96 20" aria-hidden="true"></svg>')
    top = max(value for _, value in points) or 1.0
    first, last = points[0][0], points[-1][0]
    path = " ".join(
        f"{2 + 92 * (at - first) / max(last - first, 1):.1f},{18 - 16 * value / top:.1f}"
        for at, value in points
    )
    return Markup(
        f'<svg class="spark" viewBox="0 0 96 20" role="img" aria-label="{escape(label)}">'
        f'<polyline class="line s0" points="{path}"/></svg>'
    )


def share_bar(part: float, whole: float, label: str) -> Markup:
    """How much of a whole is used."""
    fraction = min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
    level = "high" if fraction >= 0.9 else "warm" if fraction >= 0.75 else "low"
    return Markup(
        f'<svg class="bar {level}" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}"><rect class="back" width="100" height="8" rx="3"/>'
        f'<rect class="fill" width="{100 * fraction:.1f}" height="8" rx="3"/></svg>'
    )


def short(value: float) -> str:
    """12500 -> "12.5k"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _spoken(label: str, series: Sequence[tuple[str, Points]], unit: str) -> str:
    now = [f"{name} {short(points[-1][1])}{unit}" for name, points in series if points]
    return f"{label}, the last hour. Now: {', '.join(now) or 'no points yet'}"


def _nice(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    step = 1.0
    while step * 10 <= value:
        step *= 10
    return next((step * m for m in (1, 2, 5, 10) if value <= step * m), step * 10)


def _x(at_ms: int, now_ms: int, span_ms: int) -> float:
    age = (now_ms - at_ms) / span_ms
    return LEFT + (WIDTH - LEFT - RIGHT) * (1 - age)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value / top if top else 0.0)
