"""Overview: health and load of the cluster."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from odradek_console.cluster.overview import collect
from odradek_console.cluster.sampling import RECORDS, ROUND_TRIP
from odradek_console.web.charts import line_chart
from odradek_console.web.rendering import SESSION, render

CHARTED_BROKERS = 6


async def overview(request: web.Request) -> web.Response:
    session = request[SESSION]
    found = await session.run(collect, session.view)
    history = session.view.history
    now_ms = time.time_ns() // 1_000_000
    brokers = [key for key in history.names() if isinstance(key, tuple) and key[0] == ROUND_TRIP]
    trips: list[tuple[str, Any]] = [
        (f"broker {key[1]}", history.series(key)) for key in sorted(brokers)[:CHARTED_BROKERS]
    ]
    return render(
        request,
        "overview.html",
        found=found,
        sampled=session.view.sampled,
        throughput=line_chart(
            "Records per second", [("all topics", history.series(RECORDS))], now_ms, "/s"
        ),
        rate=history.last(RECORDS),
        trips=line_chart("Round trip of a request in milliseconds", trips, now_ms, " ms"),
        trip_names=[name for name, _ in trips],
    )
