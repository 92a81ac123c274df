"""The last values that clients pushed, with bounds on how many. Does no I/O.

A client may invent names and attributes, so the number of series is limited per client and in all;
others are dropped and counted. A client that has closed its connection, as a job that has
ended, is shown for some more scrapes; values go when there was no push for long.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from odradek_broker.telemetry.otlp import Point

SERIES_PER_CLIENT_MAX = 1_000
SERIES_MAX = 20_000  # some 4 MB of /metrics


@dataclass(slots=True)
class Pushed:
    client_id: str
    until_ms: float  # without another push
    points: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)


class TelemetryStore:
    """Invariant: `series` is the sum over all clients, and at most SERIES_MAX."""

    def __init__(self) -> None:
        self._by_client: dict[UUID, Pushed] = {}
        self.series = 0
        self.dropped = 0

    def put(
        self, instance_id: UUID, client_id: str, points: Iterable[Point], until_ms: float
    ) -> None:
        known = self._by_client.get(instance_id)
        if known is None:
            known = self._by_client[instance_id] = Pushed(client_id, until_ms)
        known.until_ms = until_ms
        for name, attributes, value in points:
            key = (name, attributes)
            if key not in known.points:
                full = len(known.points) >= SERIES_PER_CLIENT_MAX or self.series >= SERIES_MAX
                if full:
                    self.dropped += 1
                    continue
                self.series += 1
            known.points[key] = value

    def expire(self, now_ms: float) -> None:
        gone = [one for one, pushed in self._by_client.items() if pushed.until_ms <= now_ms]
        for instance_id in gone:
            self.series -= len(self._by_client.pop(instance_id).points)

    def clients(self) -> Iterator[tuple[UUID, Pushed]]:
        return iter(self._by_client.items())
