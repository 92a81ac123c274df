"""The status of a KafkaRebalance: the proposal in short, and how far it is carried out."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import Condition, Status

Phase = Literal[
    "", "Proposed", "Moving", "Cancelling", "MovingBack", "Done", "Balanced", "Cancelled", "Failed"
]


class GoalStatus(Status, frozen=True, kw_only=True):
    """A goal before and after the proposal."""

    name: Annotated[str, Meta(description="Name of the goal.")]
    hard: Annotated[bool, Meta(description="Whether it must not be violated.")] = False
    before: Annotated[
        float,
        Meta(
            description="Hard: violations. Soft: the part of the total that is outside of the "
            "bands of the brokers; 0.1 is 10 %."
        ),
    ] = 0.0
    after: Annotated[float, Meta(description="The same after all moves.")] = 0.0


class Progress(Status, frozen=True, kw_only=True):
    """How far the moves are."""

    done: Annotated[int, Meta(description="Partitions that are where the proposal puts them.")] = 0
    moving: Annotated[int, Meta(description="Partitions whose replicas are being copied.")] = 0
    pending: Annotated[int, Meta(description="Partitions whose moves have not begun.")] = 0
    changed: Annotated[
        int, Meta(description="Partitions that others have moved since; they are left alone.")
    ] = 0
    percent: Annotated[int, Meta(description="Of the bytes to copy.")] = 0
    bytes_left: Annotated[int, Meta(description="Bytes that are still to be copied.")] = 0
    seconds_left: Annotated[int, Meta(description="Estimate, at the throttle.")] = 0
    hold: Annotated[str, Meta(description="Why no further move begins now.")] = ""


class KnownBroker(Status, frozen=True, kw_only=True):
    """A broker that earlier proposals have taken into account."""

    id: Annotated[int, Meta(description="Id of the broker.")]
    rack: Annotated[str, Meta(description="Its rack then.")] = ""


class AwayBroker(Status, frozen=True, kw_only=True):
    """A registered broker that is not live."""

    id: Annotated[int, Meta(description="Id of the broker.")]
    since: Annotated[str, Meta(description="When this was noticed, 2026-11-17T02:00:00Z.")] = ""


class KafkaRebalanceStatus(Status, frozen=True, kw_only=True):
    """The observed state of the rebalance."""

    observed_generation: Annotated[
        int, Meta(description="metadata.generation that this status was computed from.")
    ] = 0
    conditions: Annotated[
        list[Condition],
        Meta(description="Ready: nothing is left to do. ProposalReady: there is a proposal."),
    ] = field(default_factory=list)
    phase: Annotated[
        Phase,
        Meta(
            description="Empty until the first proposal, then Proposed, Moving, Cancelling, "
            "MovingBack, Done, Balanced (nothing to move), Cancelled or Failed."
        ),
    ] = ""
    proposal: Annotated[
        str, Meta(description="Id of the proposal, which an approval has to name.")
    ] = ""
    proposed_at: Annotated[
        str, Meta(description="When it was made, for example 2026-11-17T02:00:00Z.")
    ] = ""
    why: Annotated[str, Meta(description="Why it was made.")] = ""
    trigger: Annotated[
        str, Meta(description="The event of spec.automatic that it was made for, if any.")
    ] = ""
    mode: Annotated[
        str, Meta(description="Its mode; after an event it may be another one than spec.mode.")
    ] = ""
    brokers: Annotated[list[int], Meta(description="Brokers that it adds or removes.")] = field(
        default_factory=list
    )
    document: Annotated[
        str, Meta(description="ConfigMap with the whole proposal: each move and its reason.")
    ] = ""
    goals: Annotated[list[GoalStatus], Meta(description="Goals before and after.")] = field(
        default_factory=list
    )
    moves: Annotated[int, Meta(description="Partitions that change.")] = 0
    directory_moves: Annotated[
        int, Meta(description="Replicas that change their directory within a broker.")
    ] = 0
    first_moves: Annotated[list[str], Meta(description="The first moves, with their reasons.")] = (
        field(default_factory=list)
    )
    bytes: Annotated[int, Meta(description="Bytes to copy.")] = 0
    seconds: Annotated[int, Meta(description="Estimated time at the throttle.")] = 0
    leader_changes: Annotated[int, Meta(description="Preferred leaders that change.")] = 0
    problems: Annotated[
        list[str], Meta(description="What the proposal cannot repair, and why.")
    ] = field(default_factory=list)
    progress: Annotated[
        Progress | None, Meta(description="While the proposal is carried out, and at the end.")
    ] = None
    finished_at: Annotated[str, Meta(description="When the last move ended.")] = ""
    throttled: Annotated[
        bool, Meta(description="Whether brokers or topics may have the throttle of this rebalance.")
    ] = False
    back: Annotated[bool, Meta(description="Whether the cancellation moves back.")] = False
    refresh: Annotated[
        str, Meta(description="Value of odradek.dev/refresh that the proposal was made for.")
    ] = ""
    wish: Annotated[
        str, Meta(description="Digest of the fields of the spec that the proposal was made for.")
    ] = ""
    checked_at: Annotated[str, Meta(description="When spec.imbalance was checked last.")] = ""
    known: Annotated[
        list[KnownBroker],
        Meta(description="With spec.automatic: brokers that a proposal has taken into account."),
    ] = field(default_factory=list)
    away: Annotated[
        list[AwayBroker], Meta(description="With spec.automatic: brokers that are not live.")
    ] = field(default_factory=list)
