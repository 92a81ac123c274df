"""Numbers, times and durations as people read them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from odradek_cli.output import bytes_text

__all__ = [
    "bytes_text",
    "count_text",
    "days_until",
    "duration_text",
    "moment_text",
    "rate_text",
    "since_text",
]


def count_text(count: int | None) -> str:
    """1234567 -> "1,234,567"; "-" for an unknown number."""
    return "–" if count is None else f"{count:,}"


def rate_text(rate: float | None) -> str:
    """12345.6 -> "12,346/s", 0.25 -> "0.25/s"."""
    if rate is None:
        return "–"
    return f"{rate:,.0f}/s" if rate >= 10 or rate == 0 else f"{rate:.2g}/s"


def moment_text(at_ms: int | None) -> str:
    """Milliseconds since 1970 → "2026-01-31 12:00:00.123" in UTC; records may have any number."""
    if at_ms is None or at_ms < 0:
        return "–"
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03d}"


def duration_text(ms: int) -> str:
    """604800000 → "7 days"; the largest unit that divides it."""
    for size, unit in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"),
                       (1_000, "second")):  # fmt: skip
        if ms >= size and ms % size == 0:
            count = ms // size
            return f"{count:,} {unit}{'' if count == 1 else 's'}"
    return f"{ms:,} ms"


def days_until(instant: str, now_s: float) -> int | None:
    """Whole days; negative if it is over, None if this is no time."""
    try:
        at = datetime.fromisoformat(instant)
    except ValueError:
        return None
    return math.floor(((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now_s) / 86_400)


def since_text(instant: str, now_ms: int) -> str:
    """ "2026-01-31T12:00:00Z" → "2026-01-31 12:00:00, for 4 minutes"."""
    try:
        at = datetime.fromisoformat(instant)
    except ValueError:
        return instant or "–"
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    passed_s = max(now_ms // 1000 - int(at.timestamp()), 0)
    size, unit = next(
        ((size, unit) for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute"))
         if passed_s >= size),
        (1, "second"),
    )  # fmt: skip
    count = passed_s // size
    moment = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{moment}, for {count} {unit}{'' if count == 1 else 's'}"
