"""Planted bugs of failing storage: each replaces functions by wrong ones, in test code only.

The first two are what outside testing found in the broker of 2026-11-17 (A1 and A4 of issue 17).
Next to each stands a seed that finds it, so that the quick suite need not search.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from broker_tests.sim.disk_dirs import Directory
from broker_tests.sim.disk_node import DiskNode
from broker_tests.sim.mutants import Mutant
from odradek_broker.controller import alter_partition, directories
from odradek_broker.controller.stepping_aside import SteppingAside
from odradek_broker.metadata.image import BrokerRegistration, MetadataImage
from odradek_broker.metadata.records import MetadataRecord
from odradek_broker.partition import leader_state
from odradek_broker.partition.leader_state import Follower, LeaderState
from odradek_protocol.ids import BrokerId


def _nothing(*_: object, **__: object) -> None: ...


def _always(*_: object, **__: object) -> bool:
    return True


def _never(*_: object, **__: object) -> bool:
    return False


def _nobody_without_directories(
    image: MetadataImage,
    broker: BrokerRegistration,
    failed: Collection[UUID],
    *,
    unclean_default: bool,
) -> list[MetadataRecord]:
    """The controller relies on it that a broker without any directory stops by itself."""
    if all(directory in failed for directory in broker.log_dirs):
        return []
    return _DIRECTORIES_FAILED(image, broker, failed, unclean_default=unclean_default)


_DIRECTORIES_FAILED = directories.directories_failed


def _any_follower(state: LeaderState, replica: BrokerId, follower: Follower) -> bool:
    """Also a replica that has stopped fetching, which counts as caught up for a while."""
    peers = state.peers
    return replica in peers.eligible and peers.registered.get(replica) == follower.broker_epoch


DISK_SEEDS_MAX = 200

DISK_MUTANTS: tuple[tuple[Mutant, int], ...] = (
    (
        # A1: a full disk takes the only directory offline, and the broker keeps its leaderships.
        Mutant(
            "leads-without-a-directory",
            (
                (Directory, "keeps_reserve", property(_never, _nothing)),
                (DiskNode, "_without_directories", _nothing),
                (directories, "has_none_left", _never),
                (directories, "directories_failed", _nobody_without_directories),
            ),
        ),
        2,
    ),
    (
        # A4: taken into the ISR by its leader, taken out because of its directory, and so on.
        Mutant(
            "isr-ignores-directories",
            (
                (alter_partition, "_has_directory", _always),
                (leader_state, "_eligible", _any_follower),
            ),
        ),
        34,
    ),
    (
        Mutant("full-directory-joins-the-isr", ((leader_state, "_eligible", _any_follower),)),
        17,
    ),
    (
        Mutant("full-directory-stays-in-the-isr", ((SteppingAside, "decide", _never),)),
        9,
    ),
    (
        Mutant("starved-follower-stays-in-the-isr", ((Follower, "caught_up", _always),)),
        7,
    ),
)
