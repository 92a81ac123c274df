"""The events of a partition's leader and the instructions that follow: events in, instructions out.

`partition/leader_state.py` takes the events one at a time (`step`) and returns the instructions;
`partition/write_pass.py` carries them out. All of them are immutable values.
"""

from dataclasses import dataclass
from typing import TypeAlias

from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class Proposal:
    """A new ISR for the controller; it applies only to exactly this partition epoch."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]  # with the broker epoch that fetched; -1 if unknown

    @property
    def isr_ids(self) -> tuple[BrokerId, ...]:
        return tuple(broker_id for broker_id, _ in self.isr)


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Written:
    """The leader's own log is written (flushed, if that is asked for) up to here."""

    log_end_offset: Offset


@dataclass(frozen=True, slots=True)
class FollowerFetched:
    """A fetch of this leader epoch that did not diverge. `broker_epoch` -1: unknown."""

    replica_id: BrokerId
    broker_epoch: int
    fetch_offset: Offset
    log_start_offset: Offset
    leader_end_offset: Offset  # what the follower could read when it asked


@dataclass(frozen=True, slots=True)
class FollowerStopped:
    """A follower took the partition out of its fetch session: it pauses, or its disk failed."""

    replica_id: BrokerId


@dataclass(frozen=True, slots=True)
class CheckIsr:
    """Time has passed, or brokers changed: which replicas lag, and which may join the ISR?"""


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """The metadata log has a new state of this partition, led by us in the same epoch."""

    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class MinIsrChanged:
    min_insync_replicas: int


@dataclass(frozen=True, slots=True)
class ProposalAnswered:
    """The controller's answer to a proposal; the other fields are valid without an error."""

    proposal: Proposal
    error: ErrorCode
    leader_epoch: LeaderEpoch = -1
    partition_epoch: int = -1
    isr: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class ProposalLost:
    """It was sent, and no answer will come: it is unknown whether it was carried out."""

    proposal: Proposal


Event: TypeAlias = (
    Written
    | FollowerFetched
    | FollowerStopped
    | CheckIsr
    | PartitionChanged
    | MinIsrChanged
    | ProposalAnswered
    | ProposalLost
)

# ---------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class Propose:
    """Send this to the controller. `retry`: it failed before, so after a pause."""

    proposal: Proposal
    retry: bool = False


Instruction: TypeAlias = AdvanceHighWatermark | Propose
Instructions: TypeAlias = tuple[Instruction, ...]
