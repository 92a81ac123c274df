"""The states of a classic group, as a table.

Empty                no members; may have offsets
PreparingRebalance   waits for all members to join
CompletingRebalance  all joined; waits for the leader's assignment
Stable               all members have an assignment
Dead                 deleted
"""

from enum import Enum, auto


class GroupState(Enum):
    """Values are the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    REBALANCE = auto()  # a member joined, left, or changed its protocols
    ALL_JOINED = auto()  # the join phase ended with members
    NOBODY_JOINED = auto()  # the join phase ended without members
    ASSIGNED = auto()  # the leader's assignment is in the log
    DELETED = auto()


TRANSITIONS: dict[tuple[GroupState, GroupEvent], GroupState] = {
    (GroupState.EMPTY, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.EMPTY, GroupEvent.DELETED): GroupState.DEAD,
    (GroupState.PREPARING_REBALANCE, GroupEvent.ALL_JOINED): GroupState.COMPLETING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, GroupEvent.NOBODY_JOINED): GroupState.EMPTY,
    (GroupState.PREPARING_REBALANCE, GroupEvent.DELETED): GroupState.DEAD,
    (GroupState.COMPLETING_REBALANCE, GroupEvent.ASSIGNED): GroupState.STABLE,
    (GroupState.COMPLETING_REBALANCE, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.COMPLETING_REBALANCE, GroupEvent.DELETED): GroupState.DEAD,
    (GroupState.STABLE, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.STABLE, GroupEvent.ASSIGNED): GroupState.STABLE,  # a static member returned
    (GroupState.STABLE, GroupEvent.DELETED): GroupState.DEAD,
}


class InvalidTransitionError(Exception):
    """A bug in Odradek: the event cannot happen in that state."""


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransitionError(f"{event.name} in state {state.value}") from None
