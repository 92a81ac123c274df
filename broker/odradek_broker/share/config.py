"""The settings of a share group: its own (resource type GROUP), or else the broker's."""

import re
from typing import NamedTuple

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import ResourceType
from odradek_broker.runtime.settings import Settings
from odradek_broker.share.share_partition import Limits

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


class ShareConfig(NamedTuple):
    limits: Limits = Limits()
    read_committed: bool = False
    auto_offset_reset: str = "latest"

    @property
    def reset_age_ms(self) -> int | None:
        """The age in `by_duration:PnDTnHnMn.nS`; None for earliest and latest."""
        found = _DURATION.fullmatch(self.auto_offset_reset.partition(":")[2])
        if not self.auto_offset_reset.startswith("by_duration:") or found is None:
            return None
        return round(
            sum(float(found[unit] or 0) * seconds * 1000 for unit, seconds in SECONDS.items())
        )


def share_config(settings: Settings, image: MetadataImage, group_id: str) -> ShareConfig:
    """Read for each use, because both may change."""
    own = image.config(ResourceType.GROUP, group_id)

    def number(name: str) -> int:
        return int(own[name]) if name in own else settings.int(f"group.{name}")

    return ShareConfig(
        Limits(
            lock_ms=number("share.record.lock.duration.ms"),
            locks_max=number("share.partition.max.record.locks"),
            delivery_count_max=number("share.delivery.count.limit"),
            renew=own.get("share.renew.acknowledge.enable", "true").lower() == "true",
        ),
        read_committed=own.get("share.isolation.level") == "read_committed",
        auto_offset_reset=own.get("share.auto.offset.reset", "latest"),
    )
