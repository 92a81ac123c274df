"""Changes of the log: the view changes at once, the files when the instruction is carried out."""

from __future__ import annotations

from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.types import AppendBatches, Flush, Instruction, TruncateLog
from odradek_broker.raft.values import Batch, ControlRecord
from odradek_protocol.ids import Offset


def append(state: QuorumState, batches: tuple[Batch, ...], out: list[Instruction]) -> None:
    for batch in batches:
        state.log.append(batch)
    out.append(AppendBatches(batches))
    _flush(state, out)


def append_control(
    state: QuorumState, records: tuple[ControlRecord, ...], out: list[Instruction]
) -> Offset:
    """One control batch of this leader's epoch; returns its base offset."""
    base_offset = state.log.end_offset
    append(state, (Batch(base_offset, len(records), state.epoch, records),), out)
    return base_offset


def truncate(state: QuorumState, end_offset: Offset, out: list[Instruction]) -> None:
    state.log.truncate_to(end_offset)
    out.append(TruncateLog(end_offset))
    if state.log.flushed_offset < end_offset:  # flushes of the old generation no longer count
        _flush(state, out)


def _flush(state: QuorumState, out: list[Instruction]) -> None:
    out.append(Flush(state.log.end_offset, state.log.generation))
