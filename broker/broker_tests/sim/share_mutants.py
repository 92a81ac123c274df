"""Planted bugs of share groups: each replaces one function by a wrong one, in test code only.

Next to each stands a seed that finds it, so that the quick suite need not search.
"""

from __future__ import annotations

from typing import Any

from broker_tests.sim.coord_mutants import _answers_at_once
from broker_tests.sim.mutants import Mutant
from odradek_broker.coordinator.host import ShardHost
from odradek_broker.coordinator.result import CoordinatorResult, Moment
from odradek_broker.share import records, service, state
from odradek_broker.share.config import ShareConfig, share_config
from odradek_broker.share.held import HeldPartition
from odradek_broker.share.runs import Delivery
from odradek_broker.share.shard import ShareShard
from odradek_broker.share.share_partition import SharePartition, StateBatch
from odradek_broker.share.state import Key, SharePartitionState
from odradek_broker.share.states import AVAILABLE
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.ids import Offset


def _nothing(*_: Any, **__: Any) -> None: ...


def _without_limit(*args: Any) -> ShareConfig:
    """Records are delivered again for ever."""
    config = share_config(*args)
    return config._replace(limits=config.limits._replace(delivery_count_max=99))


def _start_at_the_end(partition: SharePartition, number: int) -> Offset:
    """An update moves the start past records that are not done."""
    return partition.end_offset + 1


def _newer_wins(
    old: tuple[StateBatch, ...], new: tuple[StateBatch, ...], start: int
) -> tuple[StateBatch, ...]:
    """A write that arrives late undoes an acknowledgement."""
    kept = [part for batch in old for part in state._without(batch, new)]
    return tuple(batch for batch in sorted([*kept, *new]) if batch.last >= start)


async def _not_written(*_: Any) -> KafkaError | None:
    """Acknowledgements stay in the memory of the leader."""
    return None


def _forgets_updates(before: SharePartitionState, data: bytes) -> SharePartitionState:
    """A coordinator knows snapshots only."""
    return before


def _initialized_again(
    shard: ShareShard, key: Key, state_epoch: int, start_offset: Offset, now: Moment
) -> CoordinatorResult[None]:
    """A late initialization resets a state in use."""
    made = SharePartitionState(
        state_epoch=state_epoch,
        leader_epoch=0,
        snapshot_epoch=100 + now.wall_ms % 1_000_000,
        start_offset=start_offset,
        created_ms=now.wall_ms,
    )
    return CoordinatorResult((records.snapshot_record(key, made),), None)


def _locks_of_others(partition: SharePartition, *args: Any, **kwargs: Any) -> Any:
    """Locked records are delivered to others too."""
    for run in partition._runs:
        if run.delivery.member_id and run.before is None:
            free = Delivery(AVAILABLE, run.delivery.deliveries - 1)
            partition._runs.set(run, free)
    partition._runs.join_around(partition.start_offset, partition.end_offset)
    return _ACQUIRE(partition, *args, **kwargs)


_ACQUIRE = SharePartition.acquire
SHARE_SEEDS_MAX = 60

SHARE_MUTANTS: tuple[tuple[Mutant, int], ...] = (
    (Mutant("acknowledged-before-committed", ((ShardHost, "settle", _answers_at_once),)), 0),
    (Mutant("locks-kept-when-a-member-dies", ((HeldPartition, "release", _nothing),)), 7),
    (Mutant("delivery-count-unlimited", ((service, "share_config", _without_limit),)), 0),
    (Mutant("start-moves-too-far", ((SharePartition, "_complete_until", _start_at_the_end),)), 0),
    (Mutant("late-writes-win", ((state, "combine", _newer_wins),)), 2),
    (Mutant("acknowledgements-not-written", ((HeldPartition, "_write", _not_written),)), 0),
    (Mutant("updates-not-replayed", ((records, "replay_update", _forgets_updates),)), 0),
    (Mutant("late-initialization-resets", ((ShareShard, "initialize", _initialized_again),)), 2),
    (Mutant("locks-ignored", ((SharePartition, "acquire", _locks_of_others),)), 0),
)
