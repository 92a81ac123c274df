"""Client quotas: who has which limit, how much of it is used, how long to throttle. Does no I/O.

    limits = ClientQuotas()
    limits.apply(image.client_quotas)
    limits.produce(QuotaClient("alice", "app"), 1_048_576, now_ms)   → ms to throttle, 0 if none

The first of these that has a quota of the kind decides (Kafka's precedence), and the clients that
it covers share one measurement per user and client id that it names:

    1 user and client id    4 any user (default) and client id     7 client id
    2 user, any client id   5 any user, any client id              8 any client id
    3 user                  6 any user

Handlers check `limited` before anything else: without quotas, a request costs that one look.
"""

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from odradek_broker.metadata.client_quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    Quotas,
)
from odradek_broker.security.rates import SampledRate, TokenBucket, Windows

# Measurements and look-ups kept: an old one of an idle client equals a new one. Clients choose
# their client ids, so that without a limit they could fill the memory.
CLIENTS_MAX = 10_000
DEFAULT_WINDOWS = Windows()
PERCENT_PER_NS = 100 / 1_000_000_000  # percent of one second of a thread


class QuotaClient(NamedTuple):
    """`client_id` is "" for a client that sends none."""

    user: str
    client_id: str


M = TypeVar("M", SampledRate, TokenBucket)


class Throttled:
    """How often and for how long clients were throttled, for the metrics."""

    __slots__ = ("times", "total_ms")

    def __init__(self) -> None:
        self.times = 0
        self.total_ms = 0


class _Kind(Generic[M]):
    """The quotas of one kind, e.g. producer_byte_rate, and what clients have used of them."""

    def __init__(self, key: str, measure: type[M], windows: Windows) -> None:
        self.key = key
        self.limits: dict[QuotaEntity, float] = {}
        self.throttled = Throttled()
        self._measure: type[M] = measure
        self._windows = windows
        self._measured: dict[QuotaClient, M] = {}
        self._found: dict[QuotaClient, tuple[float, QuotaClient] | None] = {}

    def apply(self, quotas: Quotas) -> None:
        """Usage measured so far counts towards the new limits."""
        self.limits = {e: values[self.key] for e, values in quotas.items() if self.key in values}
        self._found.clear()
        if not self.limits:
            self._measured.clear()

    def find(self, client: QuotaClient, now_ms: float) -> tuple[float, M] | None:
        """The limit of a client, and the measurement that it shares with others; None: no limit."""
        if not self.limits:
            return None
        if client not in self._found:
            if len(self._found) >= CLIENTS_MAX:
                self._found.clear()
            self._found[client] = _decisive(self.limits, client)
        found = self._found[client]
        if found is None:
            return None
        limit, shared_by = found
        measured = self._measured.get(shared_by)
        if measured is None:
            if len(self._measured) >= CLIENTS_MAX:
                self._drop_idle(now_ms)
            measured = self._measured[shared_by] = self._measure(self._windows, now_ms)
        return limit, measured

    def _drop_idle(self, now_ms: float) -> None:
        oldest_ms = now_ms - (self._windows.samples + 1) * self._windows.window_ms
        self._measured = {c: m for c, m in self._measured.items() if m.last_ms > oldest_ms}

    def note(self, throttle_ms: int) -> int:
        if throttle_ms > 0:
            self.throttled.times += 1
            self.throttled.total_ms += throttle_ms
        return throttle_ms


class ClientQuotas:
    def __init__(
        self, windows: Windows = DEFAULT_WINDOWS, controller_windows: Windows = DEFAULT_WINDOWS
    ) -> None:
        self.limited = False  # whether any quota of a user or a client id exists
        self._windows = windows
        self._produce = _Kind(PRODUCER_BYTE_RATE, SampledRate, windows)
        self._fetch = _Kind(CONSUMER_BYTE_RATE, SampledRate, windows)
        self._request = _Kind(REQUEST_PERCENTAGE, SampledRate, windows)
        self._mutation = _Kind(CONTROLLER_MUTATION_RATE, TokenBucket, controller_windows)

    def apply(self, quotas: Quotas) -> None:
        for kind in (self._produce, self._fetch, self._request):
            kind.apply(quotas)
        self._mutation.apply(quotas)
        kinds = (self._produce, self._fetch, self._request, self._mutation)
        self.limited = any(kind.limits for kind in kinds)

    def throttled(self) -> Mapping[str, Throttled]:
        """How often and for how long clients were throttled, by the kind of quota."""
        rates = {kind.key: kind.throttled for kind in (self._produce, self._fetch, self._request)}
        return {**rates, self._mutation.key: self._mutation.throttled}

    # -- each records what was used, and gives the milliseconds to throttle ---------------------

    def produce(self, client: QuotaClient, size_bytes: int, now_ms: float) -> int:
        found = self._produce.find(client, now_ms)
        if found is None:
            return 0
        limit, rate = found
        rate.record(size_bytes, now_ms)
        return self._produce.note(rate.throttle_ms(limit, now_ms))

    def fetch(self, client: QuotaClient, size_bytes: int, now_ms: float) -> int:
        """A throttled fetch is answered without records: then nothing is recorded."""
        found = self._fetch.find(client, now_ms)
        if found is None:
            return 0
        limit, rate = found
        rate.record(size_bytes, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if throttle_ms > 0:
            rate.record(-size_bytes, now_ms)
        return self._fetch.note(throttle_ms)

    def unfetch(self, client: QuotaClient, size_bytes: int, now_ms: float) -> None:
        """The records of a fetch are not sent after all: another quota throttles it."""
        found = self._fetch.find(client, now_ms)
        if found is not None:
            found[1].record(-size_bytes, now_ms)

    def fetch_bytes_max(self, client: QuotaClient, now_ms: float) -> int | None:
        """The most that an idle client may fetch without being throttled; None: no limit.

        A larger response would be throttled each time, and never be sent.
        """
        found = self._fetch.find(client, now_ms)
        if found is None:
            return None
        return int(found[0] * (self._windows.samples - 1) * self._windows.window_ms / 1000.0)

    def request(self, client: QuotaClient, busy_ns: int, now_ms: float) -> int:
        """`busy_ns` is the time that the broker worked on the request. At most one window: longer
        pauses would look like a broker that is gone."""
        found = self._request.find(client, now_ms)
        if found is None:
            return 0
        limit, rate = found
        rate.record(busy_ns * PERCENT_PER_NS, now_ms)
        longest_ms = int(self._windows.window_ms)
        return self._request.note(min(rate.throttle_ms(limit, now_ms), longest_ms))

    def mutate(self, client: QuotaClient, partitions: int, now_ms: float, *, strict: bool) -> int:
        """Partitions that are created or deleted. Clients before KIP-599 (not `strict`) are
        throttled after the request; for the others, nothing is taken from a bucket that owes."""
        found = self._mutation.find(client, now_ms)
        if found is None:
            return 0
        limit, bucket = found
        throttle_ms = bucket.throttle_ms(limit, now_ms) if strict else 0
        if throttle_ms == 0:
            bucket.take(partitions, limit, now_ms)
            throttle_ms = 0 if strict else bucket.throttle_ms(limit, now_ms)
        return self._mutation.note(throttle_ms)


def _decisive(
    limits: Mapping[QuotaEntity, float], client: QuotaClient
) -> tuple[float, QuotaClient] | None:
    """The limit for a client, and by which user and client id it is measured ("": by all)."""
    user, client_id = client
    pairs: tuple[tuple[QuotaEntity, QuotaClient], ...] = (
        (((USER, user), (CLIENT_ID, client_id)), client),
        (((USER, user), (CLIENT_ID, None)), client),
        (((USER, user),), QuotaClient(user, "")),
        (((USER, None), (CLIENT_ID, client_id)), client),
        (((USER, None), (CLIENT_ID, None)), client),
        (((USER, None),), QuotaClient(user, "")),
        (((CLIENT_ID, client_id),), QuotaClient("", client_id)),
        (((CLIENT_ID, None),), QuotaClient("", client_id)),
    )
    for entity, shared_by in pairs:
        if entity in limits:
            return limits[entity], shared_by
    return None
