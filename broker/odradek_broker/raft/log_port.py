"""The log as the driver of the quorum sees it: the production `Log`, or a list in simulation.

The state machine itself never calls it: it reads a `LogView` and returns instructions.
"""

from __future__ import annotations

from typing import Protocol

from odradek_broker.raft.values import Batch, SnapshotInfo
from odradek_broker.raft.voters import VotersAt
from odradek_protocol.ids import Offset


class RaftLog(Protocol):
    """Raises OSError when the disk fails; the node then leaves the quorum."""

    @property
    def start_offset(self) -> Offset: ...

    @property
    def end_offset(self) -> Offset: ...

    def snapshots(self) -> tuple[tuple[SnapshotInfo, VotersAt], ...]:
        """Complete snapshots, oldest first, each with the voter set in its header.

        The log starts at 0 or where one of them ends. A log that ends before the newest
        snapshot was about to be replaced by it when the process died; the driver does that at the
        next start.
        """

    def read(self, from_offset: Offset, max_bytes: int) -> tuple[Batch, ...]:
        """Whole batches from `from_offset` (a batch boundary) on; at least one if there is one."""

    def append(self, batches: tuple[Batch, ...]) -> None: ...

    def truncate_to(self, end_offset: Offset) -> None: ...

    def trim_to(self, start_offset: Offset) -> None: ...
