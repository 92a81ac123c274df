"""How many bytes of requests the broker holds at once, over all connections.

The size of its buffer is charged to a request: the whole request once its handler starts, and while
it is being received a buffer that grows with the bytes that arrive (`large_frame.py`), never the
size that a length prefix announces. The memory is released when the request is answered.

    budget  queued.max.request.bytes   256 MB  brokers may use all of it
    limit   clients may use            224 MB  an eighth is reserved for other brokers

Over the limit a connection stops reading (TCP then slows the client down) and waits here. Memory
that is released goes first to the connections that wait, in this order: other brokers; requests
that are partly received, the oldest first, because a request releases memory only after it was
received whole; new requests in the order in which they came.

A partly received request gets more memory only if all of them could still be received whole, one
after the other (the banker's algorithm; their sizes are known). So they cannot deadlock. Senders
that never finish are dropped by `receiving.py`. adr/0014 has the reasoning.
"""

from bisect import insort
from collections.abc import Callable
from typing import Final

from odradek_broker.network.large_frame import LargeFrame

# Used when queued.max.request.bytes is -1 (Kafka's default, no limit). A broker that is meant
# to run in tens of MB needs a limit; this one admits two requests of the largest size (100 MB).
DEFAULT_BUDGET_BYTES: Final = 256 * 1024 * 1024
# The part of the budget that only requests of other brokers get: an eighth.
BROKERS_SHARE: Final = 8
# Every connection may have unanswered requests of this size, however much others hold: metadata,
# heartbeats, commits, votes and most fetches of replicas never wait for memory.
SMALL_BYTES: Final = 68 * 1024
# The size of a read while connections wait for memory; otherwise it is not limited (0).
READ_AHEAD_WHEN_SHORT_BYTES: Final = 16 * 1024

# The order in which waiting requests get memory.
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
        """Bytes that are charged already for the same request."""
        return 0 if self.frame is None else self.frame.capacity


def _turn(waiter: Waiter) -> tuple[int, float]:
    return waiter.rank, waiter.order


class RequestMemory:
    """Invariant: `used_bytes` <= budget + one request + SMALL_BYTES per connection.

    While a connection waits, `take` fails: waiting connections come first.
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
        self._open_bytes = self.limit_bytes  # the limit of `take`; -1 while a connection waits
        self._waiting: list[Waiter] = []
        self._call_soon = call_soon
        self._serving_soon = False

    # --- whole requests ------------------------------------------------------------------

    def take(self, size: int) -> bool:
        """Charges a whole request; False if the memory is not available to a client now."""
        if self.used_bytes + size > self._open_bytes:
            return False
        self.used_bytes += size
        return True

    def take_for_broker(self, size: int) -> bool:
        """As `take`, but from the whole budget, and before clients that wait."""
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
        """Its capacity is charged already, and so is the growth that `grown` reports."""
        if frame.size > SMALL_BYTES:  # small ones never wait
            self.frames.add(frame)
            self.frames_bytes += frame.capacity

    def grown(self, frame: LargeFrame, charge: int) -> None:
        if frame.size > SMALL_BYTES:
            self.frames_bytes += charge

    def end(self, frame: LargeFrame) -> None:
        """It was received whole, or dropped. Its memory is released separately."""
        if frame.size > SMALL_BYTES:
            self.frames.discard(frame)
            self.frames_bytes -= frame.capacity

    def _safe(self, frame: LargeFrame | None, size: int, charge: int, limit: int) -> bool:
        """Whether all requests that are being received could still be received whole after this.

        Requests whose handler runs release their memory without any more.
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
        """The connection whose turn is next."""
        return self._waiting[0] if self._waiting else None

    def wait(self, waiter: Waiter) -> None:
        """Its `granted` is called once, in a later pass, when its bytes are charged."""
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
        """At the end of the pass: serving starts requests, whose responses release memory."""
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
        """The next request in the queue; or the partly received one that needs the fewest bytes.

        In a safe state that one can always continue. If brokers wait for it, it may use the memory
        that is reserved for them.
        """
        head = self._waiting[0]
        if self.can_serve(head):
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
        """Whether there is memory for it, if `freed` bytes were released."""
        if self.used_bytes - freed + waiter.charge <= self._limit_now():
            return True
        return self._exceeds(waiter, freed)

    def can_serve(self, waiter: Waiter) -> bool:
        """Whether it would get its memory now: enough is free, and no other request is stranded."""
        return self.fits(waiter) and self._may_go_on(waiter)

    def _exceeds(self, waiter: Waiter, freed: int) -> bool:
        """A request of more than half the limit may exceed it if the others leave half of it free.

        Otherwise a request that is about as large as the limit would never be received.
        """
        others = self.used_bytes - freed - waiter.own_bytes
        half = self.limit_bytes // 2
        return waiter.own_bytes + waiter.charge > half and others <= half
