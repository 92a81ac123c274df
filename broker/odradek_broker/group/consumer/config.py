"""The settings group.consumer.*."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum


class MigrationPolicy(Enum):
    """group.consumer.migration.policy: the conversions allowed for a group with members."""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrade_enabled(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrade_enabled(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """The settings of the broker; `of_group` applies those of one group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    classic_max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default
    assignment_interval_ms: int = 1_000
    regex_refresh_interval_ms: int = 600_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    def of_group(self, own: Mapping[str, str]) -> "ConsumerGroupConfig":
        """These settings, overridden by those of a group (resource type GROUP)."""
        if not own:
            return self
        return replace(
            self,
            session_timeout_ms=int(own.get("consumer.session.timeout.ms", self.session_timeout_ms)),
            heartbeat_interval_ms=int(
                own.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms)
            ),
            assignment_interval_ms=int(
                own.get("consumer.assignment.interval.ms", self.assignment_interval_ms)
            ),
        )
