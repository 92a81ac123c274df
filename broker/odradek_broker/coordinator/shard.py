"""What a coordinator's state for one partition of its topic has to be. Pure; see __init__."""

from typing import Protocol, TypeVar

from odradek_broker.coordinator.result import CoordinatorRecord, CoordinatorResult, Moment
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.ids import LeaderEpoch, Offset, ProducerId


class Shard(Protocol):
    def replay(self, offset: Offset, producer_id: ProducerId, record: CoordinatorRecord) -> None:
        """The one path on which records become state; in the order of the log.

        `producer_id` is -1 unless the record is part of a transaction whose outcome is still to
        come. Never raises for a record that a newer version wrote: it is skipped and logged.
        """

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """The producer's transaction in this partition ended."""

    def loaded(
        self, leader_epoch: LeaderEpoch, image: MetadataImage, now: Moment
    ) -> CoordinatorResult[None]:
        """All of the log was replayed: deadlines begin, requests will come. If its records cannot
        be appended (too few in-sync replicas), the shard is loaded anew a little later."""

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """The same broker leads in a newer epoch; nothing was lost."""

    def metadata_changed(self, delta: MetadataDelta, now: Moment) -> CoordinatorResult[None]:
        """The cluster's metadata changed: topics came or went, …"""

    def next_deadline_ms(self) -> float:
        """When `expire` has something to do, in monotonic time; infinity if never."""

    def expire(self, now: Moment) -> CoordinatorResult[None]:
        """Do what is due. With records the result is volatile: the deadline is gone already."""


S = TypeVar("S", bound=Shard)
