"""The document of a proposal, as it is written and read. It needs no numpy: the plan of a pass
reads documents without loading the optimizer.

    to_json(proposal)        # what `odradek rebalance propose -o FILE` writes, and apply reads
    from_json(text)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

NEGLIGIBLE = 1e-3  # a soft goal with less outside of its bands is reached
VIOLATED = 1e-9  # above it, a hard goal is violated
ID_CHARACTERS = 10
FORMAT = 1  # of the JSON document
REMOVE_BROKERS = "remove-brokers"


class Goal(msgspec.Struct, frozen=True):
    """Hard: the number of violations. Soft: the part of the total that is outside of the bands."""

    name: str
    title: str
    hard: bool
    before: float
    after: float
    deviation_before: float = 0.0  # soft: standard deviation of brokers, relative to the mean
    deviation_after: float = 0.0

    @property
    def reached(self) -> bool:
        return self.after <= (VIOLATED if self.hard else NEGLIGIBLE)


class Move(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    before: tuple[int, ...]  # ids of brokers, the preferred leader first
    after: tuple[int, ...]
    bytes: int
    seconds: float  # at the throttle, alone
    why: str

    @property
    def new(self) -> tuple[int, ...]:
        return tuple(b for b in self.after if b not in self.before)

    @property
    def leader_waits(self) -> bool:
        """Whether the preferred leader is a new replica, which cannot lead before it is in sync."""
        return self.after[0] not in self.before


class DirectoryChange(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    broker: int
    before: str
    after: str
    bytes: int
    why: str


class Proposal(msgspec.Struct, frozen=True):
    format: int
    mode: str
    throttle: float  # bytes per second and broker, in each direction
    goals: list[Goal]
    moves: list[Move]
    directory_moves: list[DirectoryChange]
    problems: list[str]
    bytes: int  # copied between brokers
    seconds: float  # of all moves, at the throttle
    leader_changes: int
    without_preferred_leader: list[str]  # partitions, until their new replica is in sync
    brokers: list[int] = []  # that are added or removed, by the mode

    @property
    def removed(self) -> list[int]:
        """Brokers that are emptied: it does not matter whether they are live."""
        return self.brokers if self.mode == REMOVE_BROKERS else []


def proposal_id(proposal: Proposal) -> str:
    """A digest of the document: an approval names exactly what was read."""
    return hashlib.sha256(msgspec.json.encode(proposal)).hexdigest()[:ID_CHARACTERS]


def to_json(proposal: Proposal) -> str:
    return msgspec.json.format(msgspec.json.encode(proposal), indent=2).decode() + "\n"


def from_json(text: str) -> Proposal:
    """Raises ValueError, with the field, if the text is not a proposal."""
    try:
        proposal = msgspec.json.decode(text, type=Proposal)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a proposal of `odradek rebalance propose`: {error}") from None
    if proposal.format != FORMAT:
        raise ValueError(
            f"format {proposal.format} of the proposal is unknown; this reads {FORMAT}"
        )
    return proposal


def seconds(moves: Sequence[Move], throttle: float) -> float:
    """The busiest broker decides: old leaders send, new replicas receive."""
    sent: dict[int, int] = {}
    received: dict[int, int] = {}
    for move in moves:
        if move.new:
            sent[move.before[0]] = sent.get(move.before[0], 0) + move.bytes
        for broker in move.new:
            received[broker] = received.get(broker, 0) + move.bytes // len(move.new)
    return round(max((*sent.values(), *received.values()), default=0) / throttle, 1)
