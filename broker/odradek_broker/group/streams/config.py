"""The settings group.streams.*."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from odradek_broker.runtime.settings import Settings

NUM_STANDBY_REPLICAS = "num.standby.replicas"  # in Kafka's records


@dataclass(frozen=True, slots=True)
class StreamsGroupConfig:
    """The settings of the broker; `of_group` applies those of one group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    num_standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 3_000
    assignment_interval_ms: int = 1_000

    @classmethod
    def of(cls, settings: Settings) -> "StreamsGroupConfig":
        return cls(
            session_timeout_ms=settings.int("group.streams.session.timeout.ms"),
            heartbeat_interval_ms=settings.int("group.streams.heartbeat.interval.ms"),
            max_size=settings.int("group.streams.max.size"),
            num_standby_replicas=settings.int("group.streams.num.standby.replicas"),
            initial_rebalance_delay_ms=settings.int("group.streams.initial.rebalance.delay.ms"),
            assignment_interval_ms=settings.int("group.streams.assignment.interval.ms"),
        )

    def of_group(self, own: Mapping[str, str]) -> "StreamsGroupConfig":
        """These settings, overridden by those of a group (resource type GROUP)."""
        if not own:
            return self

        def number(name: str, default: int) -> int:
            return int(own.get(f"streams.{name}", default))

        return replace(
            self,
            session_timeout_ms=number("session.timeout.ms", self.session_timeout_ms),
            heartbeat_interval_ms=number("heartbeat.interval.ms", self.heartbeat_interval_ms),
            num_standby_replicas=number(NUM_STANDBY_REPLICAS, self.num_standby_replicas),
            initial_rebalance_delay_ms=number(
                "initial.rebalance.delay.ms", self.initial_rebalance_delay_ms
            ),
            assignment_interval_ms=number("assignment.interval.ms", self.assignment_interval_ms),
        )

    @property
    def assignment_configs(self) -> dict[str, str]:
        """Settings that change the assignment; kept in the group's record, to detect changes."""
        return {NUM_STANDBY_REPLICAS: str(self.num_standby_replicas)}
