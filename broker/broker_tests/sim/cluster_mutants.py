"""Planted bugs of a cluster: each replaces one function by a wrong one, in test code only.

The cluster simulation must find each of `CLUSTER_MUTANTS` within SEEDS_MAX seeds. `FOUND_BY`
names a seed that does, so that the quick suite need not search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any

from broker_tests.sim.cluster_node import ClusterNode
from broker_tests.sim.mutants import Mutant
from odradek_broker.controller import alter_partition, brokers, elections, partition_changes
from odradek_broker.controller.elections import Elected
from odradek_broker.controller.heartbeats import BrokerSessions
from odradek_broker.controller.partition_changes import PartitionChanges
from odradek_broker.controller.result import ControllerResult
from odradek_broker.handlers import fetch_records
from odradek_broker.metadata.image import (
    MetadataImage,
    PartitionRegistration,
)
from odradek_broker.partition import follower_state, leader_events, leader_state
from odradek_broker.partition.command_queue import CommandQueue
from odradek_broker.partition.commands import LeaderAndIsr
from odradek_broker.partition.follower_state import FollowerLog, FollowerState, Truncate
from odradek_broker.partition.leader_state import Follower, LeaderState, Peers
from odradek_broker.partition.partition import Partition
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset
from odradek_protocol.messages.struct import Struct

# ---------------------------------------------------------------- the follower


def _no_divergence(partition: Partition, asked: object) -> None:
    """The leader never reports that the logs diverge."""


def _truncate_to_high_watermark(
    _: tuple[LeaderEpoch, Offset], log: FollowerLog
) -> follower_state.Instructions:
    """As before KIP-101."""
    return (Truncate(log.high_watermark, below_high_watermark=False),)


def _truncate_to_leaders_end(
    diverging: tuple[LeaderEpoch, Offset], log: FollowerLog
) -> follower_state.Instructions:
    """Truncates to the leader's end without checking where its own epochs end."""
    offset = min(diverging[1], log.log_end_offset)
    return (Truncate(offset, below_high_watermark=False),)


def _any_answer(state: FollowerState, position: object, log: FollowerLog) -> bool:
    """Late answers are applied too."""
    state.under_way = None
    state.status = follower_state.Status.FETCHING
    return True


def _truncates_when_it_follows(
    partition: Partition, registration: PartitionRegistration, backoff_max_ms: float
) -> None:
    """A new follower cuts its log at its high watermark, whatever the leader has."""
    _FOLLOW(partition, registration, backoff_max_ms)
    if partition.log.log_end_offset > partition.log.high_watermark:
        partition.log.truncate_to(partition.log.high_watermark)


_FOLLOW = Partition.follow

# ---------------------------------------------------------------- the leader


def _shrink_before_agreed(
    state: LeaderState, isr: tuple[BrokerId, ...]
) -> leader_events.Instructions:
    """The proposed ISR is used at once, also where it is smaller."""
    instructions = _PROPOSE(state, isr)
    state.maximal_isr = frozenset(isr)
    return instructions


_PROPOSE = leader_state._propose


def _expansion_does_not_count(
    state: LeaderState, isr: tuple[BrokerId, ...]
) -> leader_events.Instructions:
    """The high watermark does not wait for replicas that are about to join."""
    instructions = _PROPOSE(state, isr)
    state.maximal_isr = frozenset(state.isr)
    return instructions


def _nobody_is_about_to_join(*_: object) -> bool:
    return False


def _expand_early(state: LeaderState, now_ms: float) -> leader_events.Instructions:
    """Every replica that fetches may join, at whatever offset."""
    joining = tuple(
        replica
        for replica, follower in state.followers.items()
        if follower.log_end_offset >= 0
        and replica not in state.isr
        and leader_state._eligible(state, replica, follower)
    )
    return leader_state._propose(state, state.isr + joining) if joining else ()


def _expand_at_high_watermark(state: LeaderState, now_ms: float) -> leader_events.Instructions:
    """A replica joins at the high watermark, although that of a new leader may be too low."""
    joining = tuple(
        replica
        for replica, follower in state.followers.items()
        if follower.log_end_offset >= state.high_watermark
        and replica not in state.isr
        and leader_state._eligible(state, replica, follower)
    )
    return leader_state._propose(state, state.isr + joining) if joining else ()


def _any_incarnation(state: LeaderState, replica: BrokerId, follower: Follower) -> bool:
    return replica in state.peers.eligible


def _no_leader_epoch_fence(partition: Partition, current_leader_epoch: LeaderEpoch) -> None:
    """A fetch of another leader epoch is accepted."""


def _progress_of_older_epoch(
    partition: Partition, registration: PartitionRegistration, peers: Peers, now_ms: float
) -> leader_events.Instructions:
    """Acknowledgements of an older epoch, or given to another leader, still count."""
    partition_had = partition.log.high_watermark
    instructions = _LEAD(partition, registration, peers, now_ms)
    assert partition.leading is not None
    for replica, follower in partition.leading.followers.items():
        if replica in registration.isr:
            follower.log_end_offset = max(partition_had, partition.log.log_end_offset)
    return instructions


_LEAD = Partition.lead


def _acks_before_commit(partition: Partition) -> None:
    """acks=all is acknowledged when the leader has written."""
    state = partition.leading
    if state is None:
        return
    while partition._commit_waiters and partition._commit_waiters[0][0] < state.log_end_offset:
        _, waiter, index = partition._commit_waiters.popleft()
        waiter.acknowledged(index, ErrorCode.none)


def _lost_means_not_done(
    state: LeaderState, event: leader_events.ProposalLost, now_ms: float
) -> leader_events.Instructions:
    """A proposal without an answer is taken to have failed."""
    if event.proposal == state.pending:
        state.pending = None
        state.maximal_isr = frozenset(state.isr)
        return leader_state._advance(state, now_ms)
    return ()


def _no_min_isr(state: LeaderState) -> int:
    return 1


def _same_epoch_undoes_proposal(
    state: LeaderState, event: leader_events.PartitionChanged, now_ms: float
) -> leader_events.Instructions:
    """Metadata without a new partition epoch undoes a pending proposal."""
    if event.partition_epoch == state.partition_epoch:
        state.pending = None
        state.maximal_isr = frozenset(state.isr)
    return _PARTITION_CHANGED(state, event, now_ms)


_PARTITION_CHANGED = leader_state._partition_changed

# ---------------------------------------------------------------- the controller


def _epochs_ignored(
    image: MetadataImage, isr: Sequence[BrokerId], states: Sequence[Struct]
) -> bool:
    """Any incarnation of a replica may join, also one that is not registered any more."""
    registered = [image.brokers.get(broker_id) for broker_id in isr]
    return all(broker is not None and broker.active for broker in registered)


def _partition_epoch_ignored(
    image: MetadataImage,
    broker_id: BrokerId,
    partition: PartitionRegistration | None,
    asked: Struct,
) -> ErrorCode:
    if partition is not None and asked.partition_epoch < partition.partition_epoch:
        asked = Struct(**{**vars(asked), "partition_epoch": partition.partition_epoch})
    return _VALIDATE(image, broker_id, partition, asked)


_VALIDATE = alter_partition._validate


def _unclean_although_disabled(
    live: Sequence[BrokerId],
    isr: Collection[BrokerId],
    eligible: Collection[BrokerId] = (),
    *,
    unclean: bool = False,
) -> Elected:
    return elections.elect_for_offline_partition(live, isr, eligible, unclean=True)


def _shutdown_elects_anybody(
    live: Sequence[BrokerId], isr: Collection[BrokerId], shutting_down: Collection[BrokerId]
) -> Elected:
    """A leader that stops is replaced by the first live replica, in sync or not."""
    for replica in live:
        if replica not in shutting_down:
            kind = (
                elections.ElectionKind.CLEAN if replica in isr else elections.ElectionKind.UNCLEAN
            )
            return Elected(replica, kind)
    return elections.NO_CANDIDATE


def _empty_disk_is_there(changes: PartitionChanges, replica: BrokerId, target: object) -> bool:
    return replica in changes.live


def _nothing_is_lost(
    image: MetadataImage, partition: PartitionRegistration, replica: BrokerId
) -> bool:
    return False


def _registration_changes_no_isr(*args: Any, **kwargs: Any) -> ControllerResult[int]:
    """A new incarnation stays in every ISR of the old one, also with another disk."""
    result = _REGISTER(*args, **kwargs)
    return ControllerResult(result.records[:1], result.response)


_REGISTER = brokers.register


def _suspected_for_ever(
    sessions: BrokerSessions, broker_id: BrokerId, offset: Offset, now_ms: float, *rest: Any
) -> None:
    """A broker whose connection broke once never gets its whole session back."""
    known = sessions._sessions.get(broker_id)
    until_ms = known.suspect_until_ms if known is not None else None
    _HEARD(sessions, broker_id, offset, now_ms, *rest)
    if until_ms is not None:
        sessions._sessions[broker_id].suspect_until_ms = until_ms


_HEARD = BrokerSessions.heard

# ---------------------------------------------------------------- the broker


def _hosts_at_once(node: ClusterNode) -> None:
    """Roles are taken from the metadata log as it is, before the registration arrives."""
    _START(node)
    node._hosting = True
    node._host_partitions()


_START = ClusterNode.start


def _leaves_the_mark_of_a_clean_stop(node: ClusterNode, rng: Random) -> None:
    """It stays eligible, although it may have lost its newest records."""
    _CRASH(node, rng)
    node.data.clean_epoch = node.broker_epoch


_CRASH = ClusterNode.crash


def _any_role_again(queue: CommandQueue, command: LeaderAndIsr) -> None:
    """LeaderAndIsr is carried out without checking its epochs."""
    hosting = queue._hosting
    partition = hosting.get_or_open(command)
    hosting.take_role(partition, command.registration)


def _acknowledge_before_flush(partition: Partition) -> bool:
    return False


def _nothing(*_: object) -> None: ...


def _step(
    name: str, replacement: Callable[..., leader_events.Instructions]
) -> tuple[Any, str, Any]:
    """The tables of the state machines hold the functions themselves."""
    event = getattr(leader_events, name)
    return (leader_state, "_STEP", {**leader_state._STEP, event: replacement})


# A seed that finds it, 0 where none is named; if the code has changed, others are tried too.
FOUND_BY: dict[str, int] = {
    "stale-reply-applied": 1,
    "maximal-isr-ignored": 1,
    "progress-of-older-epoch": 1,
    "unclean-election-although-disabled": 3,
    "stale-leader-and-isr-applied": 11,
    "partition-epoch-ignored": 13,
    "truncate-to-high-watermark": 14,
    "controlled-shutdown-elects-out-of-isr": 16,
    "acknowledge-before-flush": 18,
    "suspicion-stays": 24,
    "lost-proposal-forgotten": 39,
    "no-leader-epoch-fence": 43,
    "expand-before-epoch-start": 63,
    "old-metadata-undoes-proposal": 124,
    "broker-epoch-ignored": 214,
    "unclean-stop-counts-as-clean": 306,
}
SEEDS_MAX = 400

CLUSTER_MUTANTS: tuple[Mutant, ...] = (
    Mutant("no-truncation", ((fetch_records, "divergence", _no_divergence),)),
    Mutant(
        "truncate-to-high-watermark",
        ((follower_state, "_diverged", _truncate_to_high_watermark),),
    ),
    Mutant(
        "follower-truncates-to-own-high-watermark",
        ((Partition, "follow", _truncates_when_it_follows),),
    ),
    Mutant("stale-reply-applied", ((follower_state, "_belongs", _any_answer),)),
    Mutant(
        "shrink-before-agreed",
        (
            (leader_state, "_propose", _shrink_before_agreed),
            (LeaderState, "validate", _nothing),  # the violation would show at once
        ),
    ),
    Mutant(
        "maximal-isr-ignored",
        (
            (leader_state, "_propose", _expansion_does_not_count),
            (leader_state, "_about_to_join", _nobody_is_about_to_join),
            (LeaderState, "validate", _nothing),
        ),
    ),
    Mutant("expand-early", ((leader_state, "_maybe_expand", _expand_early),)),
    Mutant(
        "expand-before-epoch-start",
        ((leader_state, "_maybe_expand", _expand_at_high_watermark),),
    ),
    Mutant(
        "old-metadata-undoes-proposal",
        (
            _step("PartitionChanged", _same_epoch_undoes_proposal),
            (leader_state, "_about_to_join", _nobody_is_about_to_join),
        ),
    ),
    Mutant(
        "controlled-shutdown-elects-out-of-isr",
        ((partition_changes, "elect_for_controlled_shutdown", _shutdown_elects_anybody),),
    ),
    Mutant(
        "empty-disk-stays-in-isr",
        (
            (partition_changes.PartitionChanges, "_there", _empty_disk_is_there),
            (brokers, "is_lost", _nothing_is_lost),
            (brokers, "register", _registration_changes_no_isr),
        ),
    ),
    Mutant(
        "unclean-stop-counts-as-clean",
        ((ClusterNode, "crash", _leaves_the_mark_of_a_clean_stop),),
    ),
    Mutant("roles-of-the-process-before", ((ClusterNode, "start", _hosts_at_once),)),
    Mutant("stale-leader-and-isr-applied", ((CommandQueue, "_leader_and_isr", _any_role_again),)),
    Mutant(
        "acknowledge-before-flush",
        ((Partition, "must_flush", property(_acknowledge_before_flush)),),
    ),
    Mutant("no-leader-epoch-fence", ((Partition, "check_leader_epoch", _no_leader_epoch_fence),)),
    Mutant("progress-of-older-epoch", ((Partition, "lead", _progress_of_older_epoch),)),
    Mutant("acks-before-commit", ((Partition, "settle", _acks_before_commit),)),
    Mutant("min-isr-ignored", ((LeaderState, "effective_min_isr", property(_no_min_isr)),)),
    Mutant(
        "unclean-election-although-disabled",
        ((partition_changes, "elect_for_offline_partition", _unclean_although_disabled),),
    ),
    Mutant("suspicion-stays", ((BrokerSessions, "heard", _suspected_for_ever),)),
    # The directed schedules of cluster_ambush.py find these; in mixed ones they
    # rarely have an effect: a replica that came back has fetched what it lost before it joins the
    # ISR, and requests are seldom delivered twice.
    Mutant("truncate-to-leaders-end", ((follower_state, "_diverged", _truncate_to_leaders_end),)),
    Mutant(
        "broker-epoch-ignored",
        (
            (leader_state, "_eligible", _any_incarnation),
            (alter_partition, "_eligible", _epochs_ignored),
        ),
    ),
    Mutant(
        "lost-proposal-forgotten",
        (
            _step("ProposalLost", _lost_means_not_done),
            (leader_state, "_about_to_join", _nobody_is_about_to_join),  # a second guard
        ),
    ),
    Mutant("partition-epoch-ignored", ((alter_partition, "_validate", _partition_epoch_ignored),)),
)
