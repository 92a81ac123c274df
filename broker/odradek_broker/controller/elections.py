"""Who leads a partition: four strategies, each a pure function (MISSION C8).

All choose the first replica, in the order of the assignment, that is there and in sync. They
differ in whom they leave out, and in what happens when there is nobody:

offline partition     the leader is gone. Nobody in sync is left: one that is *eligible* (KIP-966,
                      it has all that is committed), and where `unclean` is allowed, anybody
reassignment          only replicas of the new assignment
preferred replica     only the first of the assignment
controlled shutdown   nobody who is about to stop

`live` are the replicas whose broker and directory are there, in the order of the assignment.
Called by `partition_changes.py`, once per partition: ten thousand take a few milliseconds.
"""

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple

from odradek_broker.metadata.records import NO_LEADER
from odradek_protocol.ids import BrokerId


class ElectionKind(Enum):
    CLEAN = "in sync"
    ELIGIBLE = "not in sync, but has all that is committed"
    UNCLEAN = "may lack what was committed"


class Elected(NamedTuple):
    leader: BrokerId
    kind: ElectionKind = ElectionKind.CLEAN


NOBODY = Elected(NO_LEADER)


def elect_for_offline_partition(
    live: Sequence[BrokerId],
    isr: Collection[BrokerId],
    eligible: Collection[BrokerId] = (),
    *,
    unclean: bool = False,
) -> Elected:
    for replica in live:
        if replica in isr:
            return Elected(replica)
    for replica in live:
        if replica in eligible:
            return Elected(replica, ElectionKind.ELIGIBLE)
    if unclean and live:
        return Elected(live[0], ElectionKind.UNCLEAN)
    return NOBODY


def elect_for_reassignment(
    live: Sequence[BrokerId], isr: Collection[BrokerId], target: Collection[BrokerId]
) -> Elected:
    for replica in live:
        if replica in isr and replica in target:
            return Elected(replica)
    return NOBODY


def elect_preferred_replica(
    live: Collection[BrokerId], isr: Collection[BrokerId], assignment: Sequence[BrokerId]
) -> Elected:
    preferred = assignment[0]
    return Elected(preferred) if preferred in isr and preferred in live else NOBODY


def elect_for_controlled_shutdown(
    live: Sequence[BrokerId], isr: Collection[BrokerId], shutting_down: Collection[BrokerId]
) -> Elected:
    for replica in live:
        if replica in isr and replica not in shutting_down:
            return Elected(replica)
    return NOBODY
