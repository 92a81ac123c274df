"""The replication throttle (KIP-73): keeps a reassignment from taking all of the network.

A rate per broker and direction, and a list per topic of the replicas that it concerns; both are
set by `kafka-reassign-partitions --throttle` and removed by `--verify`:

    leader.replication.throttled.rate        bytes per second that leave this broker
    leader.replication.throttled.replicas    "0:1,1:2": of partition 0 if broker 1 leads, …; or *
    follower.replication.throttled.…         the same for bytes that come in

Replicas in sync are never throttled: acknowledged writes wait for them. Does no I/O; `now_ms` is
monotonic time.
"""

from collections.abc import Mapping
from enum import Enum

from odradek_broker.runtime.settings import Settings
from odradek_protocol.ids import BrokerId


class Direction(Enum):
    """With the names of its rate and its replicas."""

    LEADER = ("leader.replication.throttled.rate", "leader.replication.throttled.replicas")
    FOLLOWER = ("follower.replication.throttled.rate", "follower.replication.throttled.replicas")


class ReplicationThrottle:
    def __init__(self, direction: Direction, node_id: BrokerId, settings: Settings) -> None:
        self._node_id = node_id
        self._settings = settings
        self._rate_name, self._replicas_name = direction.value
        self.free_at_ms = 0.0  # before, the bytes that have passed were too many
        self._rate = 0  # at which `free_at_ms` was computed

    def concerns(self, topic_config: Mapping[str, str], partition: int) -> bool:
        if self._settings.optional_int(self._rate_name) is None:
            return False
        replicas = topic_config.get(self._replicas_name, "")
        return replicas == "*" or f"{partition}:{self._node_id}" in replicas.split(",")

    def exceeded(self, now_ms: float) -> bool:
        self._follow_rate(now_ms)
        return now_ms < self.free_at_ms

    def passed(self, number: int, now_ms: float) -> None:
        """So many bytes went through; the next ones wait until these had their time."""
        rate = self._follow_rate(now_ms)
        if rate is not None:
            self.free_at_ms = max(self.free_at_ms, now_ms) + 1000.0 * number / rate

    def _follow_rate(self, now_ms: float) -> int | None:
        """The current rate. Bytes that passed at another one wait for what they take at this one:
        a megabyte at 1 KB/s would otherwise block a throttle that was raised for a quarter hour."""
        rate = self._settings.optional_int(self._rate_name)
        if rate is None:
            return None
        rate = max(rate, 1)
        if rate != self._rate:
            if self._rate and self.free_at_ms > now_ms:
                self.free_at_ms = now_ms + (self.free_at_ms - now_ms) * self._rate / rate
            self._rate = rate
        return rate
