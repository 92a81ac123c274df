"""The metadata log as the controller uses it: `raft/service.py`, or a list in tests."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.records import MetadataRecord
from odradek_protocol.ids import LeaderEpoch, Offset


class MetadataLog(Protocol):
    @property
    def epoch(self) -> LeaderEpoch:
        """The controller epoch: increases with each controller."""

    @property
    def next_offset(self) -> Offset: ...

    def batch_of(self, records: Sequence[MetadataRecord]) -> bytes:
        """Encodes a batch for `append`; may be called in any thread."""

    def append(
        self,
        records: Sequence[MetadataRecord],
        data: bytes | None = None,
        delta: MetadataDelta | None = None,
    ) -> "asyncio.Future[None]":
        """Appends the records as one batch, all or none. Their offsets are assigned at once; the
        future is done when they are committed and published. `data` is the encoded batch, if it
        is built already; `delta` is the delta of the records.

        Raises KafkaError NOT_CONTROLLER if this node does not lead. The future raises it too, if
        leadership was lost before the commit; the outcome is unknown then.
        """
