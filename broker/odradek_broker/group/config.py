"""The settings of groups, read for each use, because dynamic ones may change."""

from dataclasses import dataclass

from odradek_broker.group.consumer.config import ConsumerGroupConfig, MigrationPolicy
from odradek_broker.group.share.config import ShareGroupConfig
from odradek_broker.group.streams.config import StreamsGroupConfig
from odradek_broker.model.assignor_names import ASSIGNOR_NAMES
from odradek_broker.runtime.settings import Settings

# A joining member that does not join with its id within this time is removed. It is also the
# session timeout of a new member whose join is parked. Kafka's value.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
MS_PER_MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10080 * MS_PER_MINUTE
    offsets_retention_check_ms: int = 600_000
    consumer: ConsumerGroupConfig = ConsumerGroupConfig()  # noqa: RUF009  (it is frozen)
    share: ShareGroupConfig = ShareGroupConfig()  # noqa: RUF009  (it is frozen)
    streams: StreamsGroupConfig = StreamsGroupConfig()  # noqa: RUF009  (it is frozen)

    @classmethod
    def of(cls, settings: Settings) -> "GroupConfig":
        return cls(
            min_session_timeout_ms=settings.int("group.min.session.timeout.ms"),
            max_session_timeout_ms=settings.int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=settings.int("group.initial.rebalance.delay.ms"),
            max_size=settings.int("group.max.size"),
            offset_metadata_max_bytes=settings.int("offset.metadata.max.bytes"),
            offsets_retention_ms=settings.int("offsets.retention.minutes") * MS_PER_MINUTE,
            offsets_retention_check_ms=settings.int("offsets.retention.check.interval.ms"),
            share=ShareGroupConfig.of(settings),
            streams=StreamsGroupConfig.of(settings),
            consumer=ConsumerGroupConfig(
                session_timeout_ms=settings.int("group.consumer.session.timeout.ms"),
                heartbeat_interval_ms=settings.int("group.consumer.heartbeat.interval.ms"),
                max_size=settings.int("group.consumer.max.size"),
                classic_max_size=settings.int("group.max.size"),
                assignors=tuple(
                    dict.fromkeys(
                        ASSIGNOR_NAMES[name] for name in settings.list("group.consumer.assignors")
                    )
                ),
                assignment_interval_ms=settings.int("group.consumer.assignment.interval.ms"),
                regex_refresh_interval_ms=settings.int("group.consumer.regex.refresh.interval.ms"),
                migration_policy=MigrationPolicy(
                    settings.str("group.consumer.migration.policy").lower()
                ),
            ),
        )
