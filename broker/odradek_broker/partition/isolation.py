"""Leaders that are isolated from the controller, and the answers to clients that wait for them.

Without a controller the ISR of a partition cannot shrink. If an in-sync follower is silent as well,
nothing more is committed here, and another broker probably leads by now.
"""

from collections.abc import Callable

from odradek_broker.partition.hosted import HostedPartitions
from odradek_broker.partition.partition import Partition
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode


class Isolation:
    def __init__(
        self,
        hosted: HostedPartitions,
        settings: Settings,
        clock: Clock,
        cut_off: Callable[[], bool],
    ) -> None:
        """`cut_off`: whether no controller answers this broker."""
        self._hosted = hosted
        self._settings = settings
        self._clock = clock
        self.cut_off = cut_off

    def is_isolated_leader(self, partition: Partition) -> bool:
        """No controller answers this broker, and an in-sync follower of the partition is silent.

        A client that only ever got timeouts would come back here for ever: it has to be refused.
        """
        if not self.cut_off() or partition.leading is None:
            return False
        silent_ms = self._settings.int("broker.session.timeout.ms")
        return partition.leading.misses_follower(self._clock.monotonic_ms(), silent_ms)

    @property
    def leads_isolated(self) -> bool:
        """Some partition here has an isolated leader, so this broker's metadata is old.

        librdkafka sends metadata requests to the broker that answered last, which is this one as
        long as it answers: only a closed connection makes the client ask another broker.
        """
        hosted = self._hosted.by_name.values()
        return self.cut_off() and any(map(self.is_isolated_leader, hosted))

    def refuse_waiters(self) -> None:
        """Requests that wait for an isolated leader are refused, so that clients look elsewhere."""
        if self.cut_off():
            for partition in self._hosted.by_name.values():
                if self.is_isolated_leader(partition):
                    partition.refuse_waiters(ErrorCode.not_leader_or_follower)
