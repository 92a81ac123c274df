"""How many bytes of requests the broker holds at once, over all connections.

Charged is what a connection has a buffer for: a whole request when its handler starts, a request
that is still being received as its buffer grows with the bytes that arrive (`large_frame.py`),
never what a length prefix claims. It is given back when the request is answered.

    budget  queued.max.request.bytes   256 MB  brokers may use all of it
    limit   clients may use            224 MB  an eighth is reserved for other brokers

Over the limit a connection stops reading (TCP then slows the client down) and waits here. Memory
that becomes free goes to those that wait and to nobody else before them: other brokers; then
requests that are half received, the oldest first, because only a request that is received whole
ever gives memory back; then new requests in the order in which they asked.

A half-received request gets more only if all of them could still be received whole, one after the
other (the banker's algorithm; their sizes are known). So they never wait for each other in a
circle. Senders that never finish are dropped by `receiving.py`. adr/0014 has the reasoning.
"""

from bisect import insort
from collections.abc import Callable
from typing import Final

from odradek_broker.network.large_frame import LargeFrame

# Used when queued.max.request.bytes is -1 (Kafka's default, no limit). A broker that is meant
# to live in tens of MB cannot afford "no limit"; this lets two largest requests (100 MB) pass.
DEFAULT_BUDGET_BYTES: Final = 256 * 1024 * 1024
# The part of the budget that only requests of other brokers get: an eighth.
BROKERS_SHARE: Final = 8
# So much may every connection have of unanswered requests, whatever others hold: metadata,
# heartbeats, commits, votes and most fetches of replicas never wait for memory.
SMALL_BYTES: Final = 68 * 1024
# What a connection may read ahead while others wait for memory; 0 is no limit.
READ_AHEAD_WHEN_SHORT_BYTES: Final = 16 * 1024

# Who is served first.
OF_BROKER: Final = 0
BEGUN: Final = 1
NEW: Final = 2


class Waiter:
    """A connection that has stopped reading until it gets `charge` bytes."""

    __slots__ = ("charge", "frame", "granted", "order", "rank", "since_ms", "size")

    def __init__(
        self,
        rank: int,
        frame: LargeFrame | None,
        size: int,
        charge: int,
        now_ms: float,
        granted: Callable[[], None],
    ) -> None:
        self.rank = rank
        self.frame = frame  # None if nothing is charged for this request yet
        self.size = size  # of the whole request
        self.charge = charge
        self.since_ms = now_ms
        self.order = now_ms if frame is None else frame.started_ms  # within the rank
        self.granted = granted

    @property
    def own_bytes(self) -> int:
        """Charged already for the same request."""
        return 0 if self.frame is None else self.frame.capacity


def _turn(waiter: Waiter) -> tuple[int, float]:
    return waiter.rank, waiter.order


class RequestMemory:
    """Invariant: `used_bytes` <= budget + one request + SMALL_BYTES per connection.

    While somebody waits, `take` gives nothing: who waits comes first.
    """

    def __init__(
        self,
        budget_bytes: int,
        frame_bytes_max: int,
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        budget = budget_bytes if budget_bytes > 0 else DEFAULT_BUDGET_BYTES
        self.budget_bytes = max(budget, frame_bytes_max)
        self.limit_bytes = max(budget - budget // BROKERS_SHARE, frame_bytes_max)
        self.used_bytes = 0
        self.frames: set[LargeFrame] = set()  # being received
        self.frames_bytes = 0  # charged for those
        self.read_ahead_bytes = 0
        self.waits = 0  # since the start
        self.grants = 0
        self._frame_bytes_max = frame_bytes_max
        self._open_bytes = self.limit_bytes  # up to which `take` gives; -1 while somebody waits
        self._waiting: list[Waiter] = []
        self._call_soon = call_soon
        self._serving_soon = False

    # --- whole requests ------------------------------------------------------------------

    def take(self, size: int) -> bool:
        """Charges a whole request; False if a client does not get that now."""
        if self.used_bytes + size > self._open_bytes:
            return False
        self.used_bytes += size
        return True

    def take_for_broker(self, size: int) -> bool:
        """As `take`, of the whole budget, and before clients that wait."""
        if self.used_bytes + size > self.budget_bytes:
            return False
        self.used_bytes += size
        return True

    def take_anyway(self, size: int) -> None:
        """For the small requests that every connection may have."""
        self.used_bytes += size

    def give_back(self, size: int) -> None:
        self.used_bytes -= size
        if self._waiting:
            self._serve_soon()

    # --- requests that are being received ------------------------------------------------

    def take_part(self, frame: LargeFrame | None, size: int, charge: int) -> bool:
        """As `take`, for the next part of a request of `size` bytes."""
        if self.used_bytes + charge > self._open_bytes:
            return False
        return self._take_if_safe(frame, size, charge, self.limit_bytes)

    def take_part_for_broker(self, frame: LargeFrame | None, size: int, charge: int) -> bool:
        if self.used_bytes + charge > self.budget_bytes:
            return False
        return self._take_if_safe(frame, size, charge, self.budget_bytes)

    def _take_if_safe(self, frame: LargeFrame | None, size: int, charge: int, limit: int) -> bool:
        if not self._safe(frame, size, charge, limit):
            return False
        self.used_bytes += charge
        return True

    def begin(self, frame: LargeFrame) -> None:
        """Its capacity is charged already; so is what `grown` adds."""
        if frame.size > SMALL_BYTES:  # small ones never wait
            self.frames.add(frame)
            self.frames_bytes += frame.capacity

    def grown(self, frame: LargeFrame, charge: int) -> None:
        if frame.size > SMALL_BYTES:
            self.frames_bytes += charge

    def end(self, frame: LargeFrame) -> None:
        """It is received whole, or never will be. Its memory is given back separately."""
        if frame.size > SMALL_BYTES:
            self.frames.discard(frame)
            self.frames_bytes -= frame.capacity

    def _safe(self, frame: LargeFrame | None, size: int, charge: int, limit: int) -> bool:
        """Whether, after this, all that is being received could be received whole.

        Requests that are being worked on give their memory back by themselves.
        """
        if size <= SMALL_BYTES:
            return True
        free = limit - self.frames_bytes - charge
        if free >= self._frame_bytes_max:
            return True
        own = charge if frame is None else frame.capacity + charge
        wanted = [(size - own, own)]  # missing, held
        for other in self.frames:
            if other is not frame:
                wanted.append((other.size - other.capacity, other.capacity))
        wanted.sort()
        for missing, held in wanted:
            if missing > free:
                return False
            free += held
        return True

    # --- waiting -------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def head(self) -> Waiter | None:
        """Whose turn is next."""
        return self._waiting[0] if self._waiting else None

    def wait(self, waiter: Waiter) -> None:
        """Its `granted` is called, once and not at once, when its bytes are charged."""
        insort(self._waiting, waiter, key=_turn)
        self.waits += 1
        self._open_bytes = -1
        self.read_ahead_bytes = READ_AHEAD_WHEN_SHORT_BYTES
        self._serve_soon()

    def forget(self, waiter: Waiter) -> None:
        """Its connection is closed."""
        self._waiting.remove(waiter)
        self._serve_soon()

    def _serve_soon(self) -> None:
        """At the end of the pass: serving starts requests, whose answers give memory back."""
        if not self._serving_soon:
            self._serving_soon = True
            self._call_soon(self._serve)

    def _serve(self) -> None:
        self._serving_soon = False
        while self._waiting:
            served = self._next()
            if served is None:
                return
            self._waiting.remove(served)
            self.used_bytes += served.charge
            self.grants += 1
            served.granted()
        self._open_bytes = self.limit_bytes
        self.read_ahead_bytes = 0

    def _next(self) -> Waiter | None:
        """The first in turn; or, of those that are half received, the one that lacks least.

        In a safe state that one can always go on. If brokers wait for it, it may use what is
        reserved for them.
        """
        head = self._waiting[0]
        if self.fits(head) and self._may_go_on(head):
            return head
        least: Waiter | None = None
        for waiter in self._waiting:
            if waiter.frame is None:
                continue
            missing = waiter.size - waiter.own_bytes
            if least is None or missing < least.size - least.own_bytes:
                least = waiter
        if least is not None and self.fits(least) and self._may_go_on(least):
            return least
        return None

    def _limit_now(self) -> int:
        brokers_wait = bool(self._waiting) and self._waiting[0].rank == OF_BROKER
        return self.budget_bytes if brokers_wait else self.limit_bytes

    def _may_go_on(self, waiter: Waiter) -> bool:
        if waiter.charge == waiter.size:
            return True
        limit = self._limit_now()
        return self._safe(waiter.frame, waiter.size, waiter.charge, limit) or self._exceeds(
            waiter, 0
        )

    def fits(self, waiter: Waiter, freed: int = 0) -> bool:
        """Whether there is room for it, if `freed` bytes were given back."""
        if self.used_bytes - freed + waiter.charge <= self._limit_now():
            return True
        return self._exceeds(waiter, freed)

    def _exceeds(self, waiter: Waiter, freed: int) -> bool:
        """One of more than half of the limit may exceed it if all others leave half of it free.

        Else one that is about as large as the limit would never pass.
        """
        others = self.used_bytes - freed - waiter.own_bytes
        half = self.limit_bytes // 2
        return waiter.own_bytes + waiter.charge > half and others <= half
