"""The clients that asked for their subscription, and when they may push. Does no I/O.

The order of a client's requests, and the refusals:

    GetTelemetrySubscriptions   once per interval; else THROTTLING_QUOTA_EXCEEDED
    PushTelemetry               once after each of these, then once per interval
    … with an old subscription id       UNKNOWN_SUBSCRIPTION_ID: the client asks again at once
    … with `terminating`                at any time, and is the last one
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from odradek_broker.telemetry.subscriptions import Selection, TelemetryClient
from odradek_protocol.error_codes import ErrorCode, KafkaError

# As in Kafka. Each takes some 500 bytes here, without its metrics.
INSTANCES_MAX = 16_384
IDLE_MS_MIN = 60_000
IDLE_INTERVALS = 3
_ASKS_AGAIN = (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)
_NEVER = float("-inf")


@dataclass(slots=True, eq=False, weakref_slot=True)
class Instance:
    """Invariant: `selection` has the metrics in the subscriptions of `version` for this client."""

    instance_id: UUID
    client: TelemetryClient
    selection: Selection
    version: int
    asked_ms: float = _NEVER
    pushed_ms: float = _NEVER
    used_ms: float = 0.0
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.none

    @property
    def subscription_id(self) -> int:
        return self.selection.subscription_id(hash(self.instance_id))

    @property
    def idle_ms_max(self) -> int:
        """Without a request for this long a client is forgotten."""
        return max(IDLE_MS_MIN, self.selection.interval_ms * IDLE_INTERVALS)

    def asks(self, now_ms: float) -> None:
        """A GetTelemetrySubscriptions; KafkaError if it comes too early."""
        early = now_ms - max(self.asked_ms, self.pushed_ms) < self.selection.interval_ms
        if early and self.last_error not in _ASKS_AGAIN:
            raise self._too_early()
        if not early:
            self.asked_ms = now_ms
        self.last_error = ErrorCode.none

    def pushes(
        self, subscription_id: int, codec: int, size: int, size_max: int, now_ms: float
    ) -> None:
        """A PushTelemetry that is not the last one; KafkaError if it is refused."""
        on_time = self.asked_ms > self.pushed_ms or (
            now_ms - self.pushed_ms >= self.selection.interval_ms
        )
        if not on_time:
            raise self._too_early()
        self.pushed_ms = now_ms
        self.check(subscription_id, codec, size, size_max)

    def check(self, subscription_id: int, codec: int, size: int, size_max: int) -> None:
        if subscription_id != self.subscription_id:
            raise KafkaError(
                ErrorCode.unknown_subscription_id,
                f"Unknown client subscription id for the client [{self.instance_id}]",
            )
        if codec not in range(5):
            raise KafkaError(
                ErrorCode.unsupported_compression_type,
                f"Unknown compression type [{codec}] is received in telemetry request from "
                f"[{self.instance_id}]",
            )
        if size > size_max:
            raise KafkaError(
                ErrorCode.telemetry_too_large,
                f"Telemetry request from [{self.instance_id}] is larger than the maximum allowed "
                f"size [{size_max}]",
            )

    def _too_early(self) -> KafkaError:
        return KafkaError(
            ErrorCode.throttling_quota_exceeded,
            f"Request from the client [{self.instance_id}] arrived before the next push interval "
            "time",
        )


class Instances:
    """At most INSTANCES_MAX clients; the one without a request for longest makes room."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[UUID, Instance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, instance_id: UUID) -> bool:
        return instance_id in self._by_id

    def find(
        self,
        instance_id: UUID,
        version: int,
        made: Callable[[], tuple[TelemetryClient, Selection]],
        now_ms: float,
    ) -> Instance:
        """Known, or new. New subscriptions begin with new intervals, as in Kafka."""
        found = self._by_id.get(instance_id)
        if found is None or found.version != version:
            client, selection = made()
            found = self._by_id[instance_id] = Instance(instance_id, client, selection, version)
            if len(self._by_id) > INSTANCES_MAX:
                self._by_id.popitem(last=False)
        found.used_ms = now_ms
        self._by_id.move_to_end(instance_id)
        return found

    def forget(self, instance: Instance) -> None:
        """New subscriptions may have replaced it; its client is gone in any case."""
        self._by_id.pop(instance.instance_id, None)

    def expire(self, now_ms: float) -> None:
        """Forgets those that have been silent for several of their intervals."""
        for instance_id, one in list(self._by_id.items()):
            if now_ms - one.used_ms >= one.idle_ms_max:
                del self._by_id[instance_id]
