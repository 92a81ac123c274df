"""The protocol of a shard, the coordinator's state for one partition. Does no I/O."""

from typing import Protocol, TypeVar

from odradek_broker.coordinator.result import CoordinatorRecord, CoordinatorResult, Moment
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.ids import LeaderEpoch, Offset, ProducerId


class Shard(Protocol):
    def replay(self, offset: Offset, producer_id: ProducerId, record: CoordinatorRecord) -> None:
        """The only way in which records change the state; called in the order of the log.

        `producer_id` is -1 unless the record is part of an open transaction. Does not raise for a
        record that a newer version wrote: it is skipped and logged.
        """

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """The producer's transaction in this partition ended."""

    def loaded(
        self, leader_epoch: LeaderEpoch, image: MetadataImage, now: Moment
    ) -> CoordinatorResult[None]:
        """The whole log was replayed: sets deadlines; requests follow. If its records cannot be
        appended (too few in-sync replicas), the shard is reloaded a little later."""

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """This broker still leads, in a newer epoch; the state stays valid."""

    def metadata_changed(self, delta: MetadataDelta, now: Moment) -> CoordinatorResult[None]:
        """The cluster's metadata changed, for example a topic was deleted."""

    def next_deadline_ms(self) -> float:
        """When `expire` is due, in monotonic time; infinity if never."""

    def expire(self, now: Moment) -> CoordinatorResult[None]:
        """Handles due deadlines. With records the result is volatile: they are cleared already."""


S = TypeVar("S", bound=Shard)
