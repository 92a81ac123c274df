"""The settings group.share.* that the group coordinator uses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from odradek_broker.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """The settings of the broker; `of_group` applies those of one group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 200
    assignment_interval_ms: int = 1_000
    initialize_retry_ms: int = 30_000

    @classmethod
    def of(cls, settings: Settings) -> "ShareGroupConfig":
        return cls(
            session_timeout_ms=settings.int("group.share.session.timeout.ms"),
            heartbeat_interval_ms=settings.int("group.share.heartbeat.interval.ms"),
            max_size=settings.int("group.share.max.size"),
            assignment_interval_ms=settings.int("group.share.assignment.interval.ms"),
            initialize_retry_ms=settings.int("group.share.initialize.retry.interval.ms"),
        )

    def of_group(self, own: Mapping[str, str]) -> "ShareGroupConfig":
        """These settings, overridden by those of a group (resource type GROUP)."""
        if not own:
            return self

        def number(name: str, default: int) -> int:
            return int(own.get(f"share.{name}", default))

        return replace(
            self,
            session_timeout_ms=number("session.timeout.ms", self.session_timeout_ms),
            heartbeat_interval_ms=number("heartbeat.interval.ms", self.heartbeat_interval_ms),
            assignment_interval_ms=number("assignment.interval.ms", self.assignment_interval_ms),
        )
