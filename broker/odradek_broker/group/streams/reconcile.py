"""One member's next step towards its target: give back first, then take what is free.

    state             heartbeat                  next
    STABLE            any, target is newer       as below, from its own epoch
    UNREVOKED_TASKS   it still has some of them  stays
    UNREVOKED_TASKS   it has none of them        as below, one epoch on
    UNRELEASED_TASKS  any                        as below

    it has to give back tasks that it still has    → UNREVOKED_TASKS, epoch stays
    others still have tasks of its target          → UNRELEASED_TASKS, target's epoch
    else                                           → STABLE, target's epoch

An active task is free when no process has it as such; any task when the member's own process does
not have it in another role or thread, because a process has one directory for its state.
"""

from collections.abc import Callable
from dataclasses import replace

from odradek_broker.group.streams.group import StreamsGroup
from odradek_broker.group.streams.member import MemberState, StreamsMember
from odradek_broker.group.streams.tasks import (
    OWNS_NOTHING,
    OwnedTasks,
    Partitions,
    Task,
    Tasks,
    each,
    grouped,
)
from odradek_protocol.error_codes import ErrorCode, KafkaError


def reconcile(
    group: StreamsGroup, member: StreamsMember, target: Tasks, owned: Tasks | None
) -> StreamsMember:
    """`owned` are the tasks in the member's heartbeat; None if it has none."""
    if member.is_reconciled_to(group.target_epoch):
        return member
    epoch = member.member_epoch
    if member.state is MemberState.UNREVOKED_TASKS:
        if owned is None or owned.overlaps(member.revoking):
            return member
        epoch += 1
    elif member.state is MemberState.UNKNOWN:
        if owned is None or not owned.is_empty:
            raise KafkaError(
                ErrorCode.fenced_member_epoch,
                "The streams group member is in a unknown state. "
                "The member must abandon all its tasks and rejoin.",
            )
        epoch = group.target_epoch
    return _next_assignment(group, member, target, owned, epoch)


def _next_assignment(
    group: StreamsGroup, member: StreamsMember, target: Tasks, owned: Tasks | None, epoch: int
) -> StreamsMember:
    kept, revoked = _split(member.owned, target)
    if not revoked.is_empty and (owned is None or owned.overlaps(revoked)):
        return _moved(member, epoch, MemberState.UNREVOKED_TASKS, kept, revoked)
    holders, process = group.holders, member.process_id

    def is_free(task: Task) -> bool:
        here = holders.active.get(task) == process or process in holders.copies.get(task, ())
        return not here

    def is_free_as_active(task: Task) -> bool:
        return task not in holders.active and is_free(task)

    waits = False
    active = {name: dict(epochs) for name, epochs in kept.active.items()}
    for task in each(target.active):
        if kept.epoch_of(task) is not None:
            continue
        if is_free_as_active(task):
            active.setdefault(task.subtopology, {})[task.partition] = group.target_epoch
        else:
            waits = True
    standby, standby_waits = _with_free(kept.standby, target.standby, is_free)
    warmup, warmup_waits = _with_free(kept.warmup, target.warmup, is_free)
    waits = waits or standby_waits or warmup_waits
    state = MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE
    taken = OwnedTasks(active, standby, warmup)
    return _moved(member, group.target_epoch, state, taken, OWNS_NOTHING)


def _split(owned: OwnedTasks, target: Tasks) -> tuple[OwnedTasks, OwnedTasks]:
    """Splits tasks into those that the target still has, and the rest."""
    sides: tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]] = ({}, {})
    for name, epochs in owned.active.items():
        for partition, since in epochs.items():
            is_kept = partition in target.active.get(name, ())
            sides[not is_kept].setdefault(name, {})[partition] = since
    kept_standby, lost_standby = _halves(owned.standby, target.standby)
    kept_warmup, lost_warmup = _halves(owned.warmup, target.warmup)
    return (
        OwnedTasks(sides[0], kept_standby, kept_warmup),
        OwnedTasks(sides[1], lost_standby, lost_warmup),
    )


def _halves(owned: Partitions, target: Partitions) -> tuple[Partitions, Partitions]:
    wanted = set(each(target))
    tasks = set(each(owned))
    return grouped(tasks & wanted), grouped(tasks - wanted)


def _with_free(
    kept: Partitions, target: Partitions, is_free: Callable[[Task], bool]
) -> tuple[Partitions, bool]:
    """The tasks with those that are free, and whether some are not."""
    have = set(each(kept))
    more = {task for task in each(target) if task not in have and is_free(task)}
    return grouped(have | more), len(have | more) < len(set(each(target)))


def _moved(
    member: StreamsMember, epoch: int, state: MemberState, owned: OwnedTasks, revoking: OwnedTasks
) -> StreamsMember:
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        state=state,
        owned=owned,
        revoking=revoking,
    )
