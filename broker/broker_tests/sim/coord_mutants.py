"""Planted bugs of coordinators: each replaces one function by a wrong one, in test code only.

Next to each stands a seed that finds it, so that the quick suite need not search.
"""

from __future__ import annotations

from typing import Any

from broker_tests.sim.mutants import Mutant
from odradek_broker.coordinator.host import Reply, ShardHost
from odradek_broker.coordinator.result import CoordinatorResult, Moment, Producer
from odradek_broker.coordinator.service import CoordinatorService
from odradek_broker.partition.partition import Partition


def _answers_at_once(
    host: ShardHost[Any],
    result: CoordinatorResult[Any],
    reply: Reply | None,
    now: Moment,
    producer: Producer | None = None,
) -> bool:
    """Acknowledged when appended, not when committed."""
    waits = _SETTLE(host, result, reply, now, producer)
    while host._waiting:
        for one, answer in host._waiting.popleft()[1]:
            one(answer)
    return waits


_SETTLE = ShardHost.settle


def _reads_do_not_wait(
    host: ShardHost[Any],
    result: CoordinatorResult[Any],
    reply: Reply | None,
    now: Moment,
    producer: Producer | None = None,
) -> bool:
    """A decision without records is answered with what may still be lost."""
    if not result.records and not result.answers and reply is not None:
        kept, host.high_watermark = host.high_watermark, host.last_offset + 1
        try:
            return _SETTLE(host, result, reply, now, producer)
        finally:
            host.high_watermark = kept
    return _SETTLE(host, result, reply, now, producer)


def _stays_loaded(coordinator: CoordinatorService[Any], partition: Partition) -> None:
    """The state is kept while another broker leads, and used again afterwards."""
    led = coordinator._led.get(partition.topic_partition.partition)
    if partition.leading is None and led is not None:
        return
    if led is not None and led.partition is partition and led.host is not None:
        led.leader_epoch = partition.leader_epoch
        led.host.last_offset = partition.log.log_end_offset - 1
        return
    _ROLE_CHANGED(coordinator, partition)


_ROLE_CHANGED = CoordinatorService._role_changed


async def _loads_what_is_committed(coordinator: CoordinatorService[Any], led: Any) -> None:
    """Records past the high watermark are left out, although it will be committed."""
    log = led.partition.log

    class Cut:
        log_end_offset = log.high_watermark

        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

    class OnCut:
        log = Cut()

        def __getattr__(self, name: str) -> Any:
            return getattr(partition, name)

    partition, led.partition = led.partition, OnCut()
    try:
        await _LOAD_ONCE(coordinator, led)
    finally:
        led.partition = partition


_LOAD_ONCE = CoordinatorService._load_once

COORD_SEEDS_MAX = 60

COORD_MUTANTS: tuple[tuple[Mutant, int], ...] = (
    (Mutant("acknowledged-before-committed", ((ShardHost, "settle", _answers_at_once),)), 1),
    (Mutant("reads-do-not-wait", ((ShardHost, "settle", _reads_do_not_wait),)), 2),
    (Mutant("stays-loaded", ((CoordinatorService, "_role_changed", _stays_loaded),)), 1),
    (
        Mutant(
            "loads-what-is-committed",
            ((CoordinatorService, "_load_once", _loads_what_is_committed),),
        ),
        0,
    ),
)
