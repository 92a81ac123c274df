"""Planted bugs of groups: each replaces one function by a wrong one, in test code only.

Next to each stands a seed that finds it, so that the quick suite need not search.
"""

from __future__ import annotations

from broker_tests.sim.coord_mutants import _answers_at_once, _reads_do_not_wait, _stays_loaded
from broker_tests.sim.mutants import Mutant
from odradek_broker.coordinator.host import ShardHost
from odradek_broker.coordinator.service import CoordinatorService
from odradek_broker.group import kinds
from odradek_broker.group.classic_group import ClassicGroup
from odradek_broker.group.shard import CLASSIC, GroupKind, GroupShard


def _nothing(*_: object, **__: object) -> None:
    """No generation check at a commit; no record of the group when a coordinator is loaded."""


_WITHOUT_GROUPS = GroupKind(
    {
        version: _nothing if replay is GroupShard.replay_group_metadata else replay
        for version, replay in CLASSIC.replayers.items()
    },
    CLASSIC.timers,
)

GROUP_SEEDS_MAX = 60

GROUP_MUTANTS: tuple[tuple[Mutant, int], ...] = (
    (Mutant("generation-not-checked", ((ClassicGroup, "validate_offset_commit", _nothing),)), 1),
    (Mutant("group-forgotten-at-failover", ((kinds, "GROUP_KINDS", (_WITHOUT_GROUPS,)),)), 0),
    (Mutant("commit-told-before-it-is-committed", ((ShardHost, "settle", _answers_at_once),)), 0),
    (Mutant("offsets-told-before-committed", ((ShardHost, "settle", _reads_do_not_wait),)), 24),
    (Mutant("stays-loaded", ((CoordinatorService, "_role_changed", _stays_loaded),)), 1),
)
