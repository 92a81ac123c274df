"""The invariants of a quorum, checked while it runs.

The checker sees everything at once, which no node can: every batch ever appended, every commit,
the disks of all hosts. Log matching is checked by induction: a batch is known by (base offset,
epoch); wherever it is appended it must have the content and the predecessor of the first time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, NoReturn

from broker_tests.sim.raft_disk import MemoryRaftLog
from broker_tests.sim.raft_node import RaftNode
from broker_tests.sim.world import SimulationError, World
from odradek_broker.raft.messages import FetchRequest, FetchSnapshotRequest, Request
from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.states import Role
from odradek_broker.raft.values import Batch, OffsetAndEpoch, ReplicaKey, Voters
from odradek_broker.raft.voters import VotersAt, VoterSet
from odradek_protocol.ids import LeaderEpoch, Offset

# Between the deadline of a timer and its tick lies at most one ms, plus the vote file.
ZOMBIE_SLACK_MS = 50


class KnownBatch(NamedTuple):
    """A batch and what was before it, the first time it was appended anywhere."""

    batch: Batch
    predecessor: OffsetAndEpoch


@dataclass
class Committed:
    batch: Batch
    total: int  # checksum of everything up to here
    by_epoch: LeaderEpoch  # of the leader that committed it first


@dataclass
class Watch:
    """Values that must not go back on one host."""

    epoch: LeaderEpoch = 0  # not even across restarts
    high_watermark: Offset = 0  # within a life


class RaftChecker:
    def __init__(self, world: World) -> None:
        self._world = world
        self.nodes: dict[int, RaftNode] = {}
        self.seen: Counter[str] = Counter()  # instructions by name: did this run test anything?
        self.leaders: dict[LeaderEpoch, ReplicaKey] = {}
        self.committed_log: list[Committed] = []
        self._index: dict[Offset, int] = {}  # base offset -> index in committed_log
        self._totals: dict[Offset, int] = {0: 0}  # end offset -> checksum
        self._voters: list[VotersAt] = []  # committed ones
        self._known: dict[tuple[Offset, LeaderEpoch], KnownBatch] = {}
        self._watches: dict[int, Watch] = {}
        self._heard: dict[int, dict[int, int]] = {}  # leader -> voter -> when
        self._in_snapshots: list[VotersAt] = []
        self._votes: dict[tuple[ReplicaKey, LeaderEpoch], ReplicaKey] = {}
        self._voters_seen: dict[int, VoterSet] = {}
        self._lost_disks: dict[ReplicaKey, MemoryRaftLog] = {}

    def fail(self, node: RaftNode, what: str) -> NoReturn:
        raise SimulationError(f"at {self._world.now_ms} ms, node {node.node_id}: {what}")

    @property
    def end_offset(self) -> Offset:
        """The end offset of everything that was ever committed."""
        return self.committed_log[-1].batch.end_offset if self.committed_log else 0

    # ------------------------------------------------------------ life of a node

    def started(self, node: RaftNode) -> None:
        state = node.state
        assert state is not None
        watch = self._watches.setdefault(node.node_id, Watch())
        if state.epoch < watch.epoch:
            self.fail(node, f"epoch fell from {watch.epoch} to {state.epoch} at a restart")
        watch.high_watermark = 0
        self._heard[node.node_id] = {}

    def wiping(self, node: RaftNode) -> None:
        """A lost disk has acknowledged what it had; it can never vote again."""
        self._lost_disks[node.key] = node.disk.log
        self.forget(node)

    def forget(self, node: RaftNode) -> None:
        self._watches[node.node_id] = Watch()

    def requested(self, node: RaftNode, request: Request) -> None:
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            self._heard[node.node_id][request.replica.id] = self._world.now_ms

    def answered(self, node: RaftNode, state: QuorumState, request: Request) -> None:
        """Batches that a leader counts as durable on another disk are durable there."""
        if state.leadership is None or not isinstance(request, FetchRequest):
            return
        progress = state.leadership.progress.get(request.replica)
        if progress is None or progress.match_offset <= state.log.start.offset:
            return
        offset = progress.match_offset
        position = OffsetAndEpoch(offset, state.log.epoch_before(offset))
        if not self._log_of(request.replica).durably_has(position):
            self.fail(node, f"believes {position} to be on the disk of {request.replica.id}")

    def _log_of(self, key: ReplicaKey) -> MemoryRaftLog:
        return self._lost_disks.get(key) or self.nodes[key.id].disk.log

    def stepped(self, node: RaftNode, state: QuorumState) -> None:
        try:
            state.validate()
        except AssertionError as error:
            self.fail(node, f"state is not valid: {error}")
        watch = self._watches[node.node_id]
        if state.high_watermark < watch.high_watermark:
            self.fail(node, f"high watermark fell below {watch.high_watermark}")
        watch.high_watermark = state.high_watermark
        if state.epoch < watch.epoch:
            self.fail(node, f"epoch fell from {watch.epoch} to {state.epoch}")
        if state.role is Role.LEADER:
            self._check_in_touch(node, state)

    def carried_out(self, node: RaftNode, state: QuorumState) -> None:
        """The instructions of a step are done: files and view agree, the epoch is on disk."""
        log, view = node.disk.log, state.log
        if log.end_offset != view.end_offset or log.start_offset != view.start.offset:
            self.fail(node, f"log is {log.start_offset}..{log.end_offset}, view {view.end}")
        self._watches[node.node_id].epoch = state.epoch

    def _check_in_touch(self, node: RaftNode, state: QuorumState) -> None:
        """A leader without fetches of a majority for long must have resigned."""
        leadership = state.leadership
        assert leadership is not None
        heard = self._heard[node.node_id]
        since_ms = leadership.since_ms - node.clock_skew_ms
        if state.voters is not self._voters_seen.get(node.node_id):  # judged from here on
            self._voters_seen[node.node_id] = state.voters
            heard.update(dict.fromkeys(state.voters.ids, self._world.now_ms))
        oldest_ms = self._world.now_ms - state.config.check_quorum_ms - ZOMBIE_SLACK_MS
        in_touch = int(state.is_voter)
        for voter in state.other_voters():
            in_touch += max(heard.get(voter.key.id, 0), since_ms) >= oldest_ms
        if in_touch < state.voters.majority:
            self.fail(node, f"leads epoch {state.epoch} out of touch with a majority")

    # ------------------------------------------------------------ leaders

    def voting(self, node: RaftNode, epoch: LeaderEpoch, candidate: ReplicaKey) -> None:
        """A vote leaves the host: one per disk and epoch."""
        before = self._votes.setdefault((node.key, epoch), candidate)
        if before != candidate:
            self.fail(node, f"votes for {before.id} and for {candidate.id} in epoch {epoch}")

    def became_leader(self, node: RaftNode, epoch: LeaderEpoch) -> None:
        leader = self.leaders.setdefault(epoch, node.key)
        if leader != node.key:
            self.fail(node, f"epoch {epoch} has two leaders: {leader.id} and {node.node_id}")
        for committed in reversed(self.committed_log):
            if committed.by_epoch < epoch:
                self._check_complete(node, epoch, committed.batch)
                return

    def _check_complete(self, node: RaftNode, epoch: LeaderEpoch, newest: Batch) -> None:
        """By log matching the newest committed batch stands for all before it."""
        state = node.state
        assert state is not None
        end = OffsetAndEpoch(newest.end_offset, newest.epoch)
        if end.offset >= state.log.start.offset and not state.log.contains(end):
            self.fail(node, f"leads epoch {epoch} without what is committed up to {end}")

    # ------------------------------------------------------------ the log

    def appending(self, node: RaftNode, batches: tuple[Batch, ...]) -> None:
        log = node.disk.log
        end = log.end
        for batch in batches:
            known = self._known.setdefault((batch.base_offset, batch.epoch), KnownBatch(batch, end))
            if known.batch is not batch and known.batch != batch:
                self.fail(node, f"another batch at {batch.base_offset} of epoch {batch.epoch}")
            if known.predecessor != end:
                self.fail(
                    node,
                    f"batch {batch.base_offset} of epoch {batch.epoch} after {end}, "
                    f"elsewhere after {known.predecessor}",
                )
            end = OffsetAndEpoch(batch.end_offset, batch.epoch)
            if batch.control and node.is_leader:
                self._check_voter_change(node, batch)

    def _check_voter_change(self, node: RaftNode, batch: Batch) -> None:
        """One voter at a time, each change committed before the next."""
        state = node.state
        assert state is not None
        if not any(isinstance(record, Voters) for record in batch.control):
            return
        entries = state.log.voters.entries()
        if len(entries) < 2:
            return
        before, after = entries[-2], entries[-1]
        if before.voters.keys == after.voters.keys:
            return
        differing = set(before.voters.keys) ^ set(after.voters.keys)
        if len(differing) > 1:
            self.fail(node, f"voter change at {after.offset} changes {len(differing)} voters")
        for older, newer in pairwise(entries[:-1]):
            pending = newer.offset >= state.high_watermark
            if pending and older.voters.keys != newer.voters.keys:
                self.fail(node, f"two pending voter changes: {newer.offset}, {after.offset}")
        assert state.leadership is not None
        if state.high_watermark <= state.leadership.epoch_start_offset:
            self.fail(node, f"voter change at {after.offset} before a commit of its epoch")

    def truncating(self, node: RaftNode, end_offset: Offset) -> None:
        if end_offset < node.applied_offset:
            self.fail(node, f"truncates to {end_offset}, committed is {node.applied_offset}")

    # ------------------------------------------------------------ commits

    def committed(self, node: RaftNode, batch: Batch, total: int) -> None:
        """A node takes `batch` as final; `total` is the checksum of all it took so far."""
        index = self._index.get(batch.base_offset)
        if index is None:
            self._first_commit(node, batch, total)
            return
        committed = self.committed_log[index]
        if committed.batch != batch or committed.total != total:
            self.fail(
                node,
                f"commits epoch {batch.epoch} at {batch.base_offset}, others committed epoch "
                f"{committed.batch.epoch} there (or something else before it)",
            )

    def _first_commit(self, node: RaftNode, batch: Batch, total: int) -> None:
        state = node.state
        assert state is not None
        if batch.base_offset != self.end_offset:
            self.fail(node, f"commits {batch.base_offset}, not a batch boundary of others")
        if state.role not in (Role.LEADER, Role.RESIGNED):
            self.fail(node, f"{state.role.value} commits {batch.base_offset}, no leader has")
        self._index[batch.base_offset] = len(self.committed_log)
        self.committed_log.append(Committed(batch, total, state.epoch))
        self._totals[batch.end_offset] = total
        for delta, record in enumerate(batch.control):
            if isinstance(record, Voters):
                self._voters.append(VotersAt(batch.base_offset + delta, record.voters))

    def commit_done(self, node: RaftNode, high_watermark: Offset) -> None:
        """A leader's commit is on the disks of a majority, or a crash could undo it."""
        state = node.state
        assert state is not None
        if state.role is not Role.LEADER:
            return
        position = OffsetAndEpoch(high_watermark, state.log.epoch_before(high_watermark))
        if position.epoch != state.epoch:
            self.fail(node, f"commits {position} in epoch {state.epoch}")
        durable = 0
        for voter in state.voters.voters:
            durable += self._log_of(voter.key).durably_has(position)
        if durable < state.voters.majority:
            self.fail(node, f"commits {position}, on {durable} of {len(state.voters)} disks")

    # ------------------------------------------------------------ snapshots

    def number_of(self, voters: VotersAt) -> int:
        """Stands for the voter set in the bytes of a snapshot."""
        self._in_snapshots.append(voters)
        return len(self._in_snapshots) - 1

    def voters_by_number(self, number: int) -> VotersAt:
        return self._in_snapshots[number]

    def snapshot_applied(self, node: RaftNode, voters: VotersAt) -> None:
        offset = node.applied_offset
        if self._totals.get(offset) != node.applied_sum:
            self.fail(node, f"snapshot at {offset} is not what was committed")
        expected = None
        for entry in self._voters:
            if entry.offset < offset:
                expected = entry
        if expected is not None and expected != voters:
            self.fail(node, f"snapshot at {offset} has the voters of {voters.offset}")
