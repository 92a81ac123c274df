"""From what is observed to a proposal, in any mode: the search, or moves between directories.

propose(Wish(mode="full"), brokers, partitions, directories, placed) -> Proposal
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odradek_operator.kafka.balance.directories import Directory, Placed, relocate
from odradek_operator.kafka.balance.document import Proposal
from odradek_operator.kafka.balance.goals import NAMES
from odradek_operator.kafka.balance.model import BrokerModel, LoadedPartition, build
from odradek_operator.kafka.balance.proposal import describe
from odradek_operator.kafka.balance.search import MODES, PRICE, Options, optimize

REMOVE_DISKS = "remove-disks"
THROTTLE = 50e6  # bytes per second and broker


@dataclass(frozen=True, slots=True)
class Wish:
    mode: str = "full"
    brokers: tuple[int, ...] = ()  # added, or to be removed
    disks: frozenset[tuple[int, str]] = frozenset()  # broker and path: to be emptied
    goals: tuple[str, ...] = ()  # empty: all
    price: float = PRICE
    throttle: float = THROTTLE
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in (*MODES, REMOVE_DISKS):
            names = ", ".join((*MODES, REMOVE_DISKS))
            raise ValueError(f"mode {self.mode!r} is unknown; the modes are {names}")
        if (self.mode == REMOVE_DISKS) != bool(self.disks):
            raise ValueError("mode remove-disks and the disks to remove need each other")


def propose(
    wish: Wish,
    brokers: Sequence[BrokerModel],
    partitions: Sequence[LoadedPartition],
    directories: Sequence[Directory] = (),
    placed: Sequence[Placed] = (),
) -> Proposal:
    """Raises ValueError, with a sentence, if the cluster cannot fulfil the wish."""
    cluster = build(brokers, partitions)
    if wish.mode == REMOVE_DISKS:
        # The goals of brokers are not pursued: with no goal, the search finds nothing to do.
        options = Options(mode="leaders-only", goals=())
        moves, problems = relocate(directories, placed, wish.disks)
    else:
        goals = wish.goals or NAMES
        options = Options(wish.mode, wish.brokers, goals, wish.price, wish.seed)
        moves, problems = relocate(directories, placed) if wish.mode == "hot-disk" else ([], [])
    plan = optimize(cluster, options)
    moved = {cluster.name(step.partition) for step in plan.steps}
    return describe(
        cluster,
        plan,
        mode=wish.mode,
        throttle=wish.throttle,
        brokers=wish.brokers,
        directory_moves=[move for move in moves if move.partition not in moved],
        problems=problems,
    )
