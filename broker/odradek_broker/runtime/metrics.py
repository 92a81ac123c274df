"""Counters that the hot path can afford, exported by `admin/metrics.py`.

A request costs one dictionary look-up and a few integer additions here: no locks (one event loop
owns everything), no label objects, and nothing is formatted before a scrape.

Times go into histograms whose buckets are powers of two in microseconds: the bucket of a
duration is its bit length. 0–1 µs falls into bucket 0 or 1, 900 µs into bucket 10
(2^9 < 900 <= 2^10).
"""

from typing import Final

# 2^25 µs = 33 s; longer durations share the last bucket.
BUCKETS: Final = 26
# bit_length() of the usual durations: as a method of int it is a call into the interpreter, and six
# of them were a twelfth of a small request.
_BIT_LENGTHS: Final = bytes(micros.bit_length() for micros in range(4096))

PHASES: Final = (
    "RequestQueueTimeMs",  # frame complete → handler starts
    "LocalTimeMs",  # the handler runs
    "RemoteTimeMs",  # waiting in the purgatory (replicas, min bytes, a coordinator)
    "ResponseQueueTimeMs",  # response ready → its first byte may be sent
    "ResponseSendTimeMs",  # first byte → last byte handed to the kernel
    "TotalTimeMs",
)


class Histogram:
    __slots__ = ("buckets", "total_us")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.total_us = 0

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def observe_us(self, micros: int) -> None:
        if 0 <= micros < len(_BIT_LENGTHS):
            index = _BIT_LENGTHS[micros]
        else:
            index = min(micros.bit_length(), BUCKETS - 1)
        buckets = self.buckets
        buckets[index] = (
            buckets[index] + 1
        )  # with `+=` mypyc would not know that these are integers
        self.total_us += micros

    def copy(self) -> "Histogram":
        return self.minus(Histogram())

    def minus(self, earlier: "Histogram") -> "Histogram":
        """The observations since `earlier`, an older copy of this histogram."""
        result = Histogram()
        result.buckets = [
            now - before for now, before in zip(self.buckets, earlier.buckets, strict=True)
        ]
        result.total_us = self.total_us - earlier.total_us
        return result

    def quantile_us(self, q: float) -> float:
        """Upper bound of the bucket in which the q-th observation lies (0 if there is none)."""
        rank = q * self.count
        seen = 0
        for index, number in enumerate(self.buckets):
            seen += number
            if number and seen >= rank:
                return float(1 << index)
        return 0.0


class RequestMetrics:
    """The requests of one API: how many per version, and the time of each phase."""

    __slots__ = ("name", "phases", "versions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.versions: dict[int, int] = {}
        self.phases = tuple(Histogram() for _ in PHASES)

    def count(self, version: int) -> None:
        self.versions[version] = self.versions.get(version, 0) + 1

    def observe(
        self,
        received: int,
        started: int,
        answered_local: int,
        answered: int,
        sending: int,
        sent: int,
    ) -> None:
        """Six timestamps in nanoseconds, in the order in which a request passes them."""
        queue, local, remote, response_queue, send, total = self.phases
        queue.observe_us((started - received) // 1000)
        local.observe_us((answered_local - started) // 1000)
        remote.observe_us((answered - answered_local) // 1000)
        response_queue.observe_us((sending - answered) // 1000)
        send.observe_us((sent - sending) // 1000)
        total.observe_us((sent - received) // 1000)


class TopicMetrics:
    """Traffic of one topic (BrokerTopicMetrics)."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "messages_in",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_fetch_requests = 0
        self.failed_produce_requests = 0
        self.messages_in = 0
        self.total_fetch_requests = 0
        self.total_produce_requests = 0


class Metrics:
    """All counters of one broker."""

    def __init__(self) -> None:
        self.requests: dict[str, RequestMetrics] = {}
        self.topics: dict[str, TopicMetrics] = {}
        self.connections = 0
        self.connections_max = 0
        self.connections_accepted = 0
        self.connections_closed: dict[str, int] = {}  # by reason
        # See network/receiving.py; bytes, connections, and counts since the start.
        self.request_memory_used = 0
        self.request_memory_limit = 0
        self.request_memory_waiting = 0
        self.request_memory_waits = 0
        self.requests_dropped_slow = 0
        self.requests_dropped_for_memory = 0
        self.loop_lag = Histogram()
        self.loop_lag_now_us = 0
        self.loop_lag_windows_late = 0  # see runtime/loop_lag.py

    def request(self, name: str) -> RequestMetrics:
        found = self.requests.get(name)
        if found is None:
            found = self.requests[name] = RequestMetrics(name)
        return found

    def topic(self, name: str) -> TopicMetrics:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicMetrics()
        return found

    def connection_closed(self, reason: str) -> None:
        self.connections_closed[reason] = self.connections_closed.get(reason, 0) + 1
