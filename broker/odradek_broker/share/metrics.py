"""Counters of the share partitions of this broker, exported by `admin/share_metrics.py`."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek_broker.share.share_partition import Acknowledged, Acquired
from odradek_protocol.share_codes import AcknowledgeType


@dataclass(slots=True)
class ShareMetrics:
    """Records, not requests."""

    acquired: int = 0
    acquired_again: int = 0  # delivered before, to this or another member
    lock_timeouts: int = 0
    write_failures: int = 0  # of state, each with one update or several
    acknowledged: dict[int, int] = field(default_factory=lambda: dict.fromkeys(AcknowledgeType, 0))

    def count_acquired(self, found: Iterable[Acquired]) -> None:
        for one in found:
            size = one.last - one.first + 1
            self.acquired += size
            if one.delivery_count > 1:
                self.acquired_again += size

    def count_acknowledged(self, batches: Iterable[Acknowledged]) -> None:
        for batch in batches:
            if len(batch.types) == 1:
                self.acknowledged[batch.types[0]] += batch.last - batch.first + 1
                continue
            for kind in batch.types:
                self.acknowledged[kind] += 1
