"""How much of a quota is used: Apache Kafka's two ways to measure it. Do no I/O.

`SampledRate` (bytes, request time, new connections) is an average over a sliding window of
`samples` windows, by default 11 of 1 s. A client that was idle may exceed its rate for a moment,
until the average does. What was recorded is known first and throttled afterwards:

    quota 1,000 B/s; 20,000 B at once → rate 20,000 B / 10 s = 2,000 B/s
    → throttle for (2,000 - 1,000) / 1,000 × 10 s = 10 s, after which 20,000 B in 20 s are 1,000 B/s

After a pause of all windows nothing is known any more, and the next request has 10 s of the quota
for itself again: a client whose requests take more than 20 s of its quota each gets up to twice its
rate.

`TokenBucket` (mutations of the controller, KIP-599) holds tokens for `samples` windows and refills
at the rate of the quota. It may go below zero: a large request is carried out as a whole, and the
next has to wait until the bucket is full enough to reach zero.
"""

from typing import NamedTuple


class Windows(NamedTuple):
    """quota.window.num and quota.window.size.seconds, or those of the controller."""

    samples: int = 11
    window_ms: float = 1000.0

    @classmethod
    def of(cls, samples: int, seconds: int) -> "Windows":
        return cls(samples, seconds * 1000.0)

    @property
    def burst_seconds(self) -> float:
        return self.samples * self.window_ms / 1000.0


class _Sample:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class SampledRate:
    __slots__ = ("_current", "_samples", "_windows", "last_ms")

    def __init__(self, windows: Windows, now_ms: float) -> None:
        self._windows = windows
        self._samples = [_Sample(now_ms)]
        self._current = 0
        self.last_ms = now_ms  # of the last record

    def record(self, amount: float, now_ms: float) -> None:
        """A negative amount takes back what was recorded."""
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._windows.window_ms:
            sample = self._advance(now_ms)
        sample.total += amount
        sample.last_ms = self.last_ms = now_ms

    def _advance(self, now_ms: float) -> _Sample:
        # One more than the window has: the oldest overlaps its beginning.
        self._current = (self._current + 1) % (self._windows.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def window_ms(self, now_ms: float) -> float:
        """The time over which the rate is averaged: at least all windows but one, so that a client
        that has just begun does not seem to be fast."""
        samples, window_ms = self._windows
        for sample in self._samples:
            if now_ms - sample.last_ms >= samples * window_ms:
                sample.reset(now_ms)
        elapsed_ms = now_ms - min(sample.start_ms for sample in self._samples)
        missing = samples - 1 - elapsed_ms // window_ms
        return max(elapsed_ms + max(missing, 0) * window_ms, 1.0)

    def per_second(self, now_ms: float) -> float:
        window_ms = self.window_ms(now_ms)
        return sum(sample.total for sample in self._samples) / window_ms * 1000.0

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """How long the client has to pause for its average to come down to `limit` per second."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        return round((rate - limit) / limit * self.window_ms(now_ms))


class TokenBucket:
    __slots__ = ("_filled", "_tokens", "_windows", "last_ms")

    def __init__(self, windows: Windows, now_ms: float) -> None:
        self._windows = windows
        self._tokens = 0.0
        self._filled = False  # full at first, but the capacity depends on the limit
        self.last_ms = now_ms

    def _refill(self, limit: float, now_ms: float) -> None:
        burst = limit * self._windows.burst_seconds
        more = limit * (now_ms - self.last_ms) / 1000.0 if self._filled else burst
        self._tokens = min(burst, self._tokens + more)
        self._filled = True
        self.last_ms = now_ms

    def take(self, tokens: float, limit: float, now_ms: float) -> None:
        """Takes them, even if the bucket then owes some."""
        self._refill(limit, now_ms)
        self._tokens -= tokens

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """How long until the bucket owes nothing."""
        self._refill(limit, now_ms)
        return round(-self._tokens / limit * 1000.0) if self._tokens < 0 else 0
