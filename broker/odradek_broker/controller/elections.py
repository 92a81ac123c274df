"""Leader election: four strategies, each a pure function (MISSION C8).

All choose the first replica, in the order of the assignment, that is live and in sync. They
differ in the replicas that they exclude, and in what they do when none is left:

offline partition     the leader is gone. If no replica is in sync: an *eligible* one (KIP-966, it
                      has every committed record), and where `unclean` is allowed, any replica
reassignment          only replicas of the new assignment
preferred replica     only the first of the assignment
controlled shutdown   no replica on a broker that is shutting down

`live` are the replicas whose broker and directory are online, in the order of the assignment.
Called by `partition_changes.py`, once per partition: ten thousand take a few milliseconds.
"""

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple

from odradek_broker.metadata.records import NO_LEADER
from odradek_protocol.ids import BrokerId


class ElectionKind(Enum):
    CLEAN = "in sync"
    ELIGIBLE = "not in sync, but has every committed record"
    UNCLEAN = "may lack committed records"


class Elected(NamedTuple):
    leader: BrokerId
    kind: ElectionKind = ElectionKind.CLEAN


NO_CANDIDATE = Elected(NO_LEADER)


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
    return NO_CANDIDATE


def elect_for_reassignment(
    live: Sequence[BrokerId], isr: Collection[BrokerId], target: Collection[BrokerId]
) -> Elected:
    for replica in live:
        if replica in isr and replica in target:
            return Elected(replica)
    return NO_CANDIDATE


def elect_preferred_replica(
    live: Collection[BrokerId], isr: Collection[BrokerId], assignment: Sequence[BrokerId]
) -> Elected:
    preferred = assignment[0]
    return Elected(preferred) if preferred in isr and preferred in live else NO_CANDIDATE


def elect_for_controlled_shutdown(
    live: Sequence[BrokerId], isr: Collection[BrokerId], shutting_down: Collection[BrokerId]
) -> Elected:
    for replica in live:
        if replica in isr and replica not in shutting_down:
            return Elected(replica)
    return NO_CANDIDATE
