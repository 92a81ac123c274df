"""The metadata log as the controller reaches it: `raft/service.py`, or a list in tests."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.records import MetadataRecord
from odradek_protocol.ids import LeaderEpoch, Offset


class MetadataLog(Protocol):
    @property
    def epoch(self) -> LeaderEpoch:
        """The controller epoch: grows with each controller."""

    @property
    def next_offset(self) -> Offset: ...

    def batch_of(self, records: Sequence[MetadataRecord]) -> bytes:
        """What `append` writes; any thread may build it."""

    def append(
        self,
        records: Sequence[MetadataRecord],
        data: bytes | None = None,
        delta: MetadataDelta | None = None,
    ) -> "asyncio.Future[None]":
        """Append as one batch: all of them or none. Their offsets are given at once; the
        future is done when they are committed and published. `data` is their batch, if it is
        built already; `delta` is what they change.

        Raises KafkaError: NOT_CONTROLLER if this node does not lead. The future raises it
        too, when leadership was lost before the commit: then the outcome is unknown.
        """
