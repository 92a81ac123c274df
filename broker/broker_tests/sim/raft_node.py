"""Drives the quorum state machine on a simulated host, as raft/service.py does on a real one.

Its state machine "above" is a running checksum of the committed batches; a snapshot is that
checksum. So a record that is lost, changed or applied twice shows at once, also through a
snapshot.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from broker_tests.sim.faults import Injector
from broker_tests.sim.raft_disk import RaftDisk, StoredSnapshot
from broker_tests.sim.world import Address, World
from odradek_broker.raft import quorum
from odradek_broker.raft.config import QuorumConfig
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.messages import Request, Response, VoteRequest, VoteResponse
from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.states import Role
from odradek_broker.raft.types import (
    AdvanceLogStart,
    AppendBatches,
    BecameLeader,
    Commit,
    Event,
    Flush,
    Flushed,
    Instruction,
    LoadSnapshot,
    PersistVote,
    ReceivedRequest,
    ReceivedResponse,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshotChunk,
    RequestFailed,
    Send,
    SnapshotCreated,
    SnapshotLoaded,
    Tick,
    TrimLog,
    TruncateLog,
    WriteSnapshotChunk,
)
from odradek_broker.raft.values import Batch, OffsetAndEpoch, RaftEndpoint, ReplicaKey, SnapshotInfo
from odradek_broker.raft.voters import VoterSet
from odradek_protocol.ids import Offset

if TYPE_CHECKING:
    from broker_tests.sim.raft_checker import RaftChecker

VOTE_FILE_MS_MAX = 10
FLUSH_MS_MAX = 10
SLOW_FLUSH_CHANCE = 0.02
SLOW_FLUSH_MS_MAX = 200
_SNAPSHOT = struct.Struct(">IQ")  # checksum of all before it, number of its voter set


class ToNode(NamedTuple):
    """A request on the wire."""

    correlation_id: int
    request: Request


class FromNode(NamedTuple):
    """An answer on the wire."""

    correlation_id: int
    response: Response


class Ticket(NamedTuple):
    """The destination of a reply; None for the operator, which ignores replies."""

    address: Address | None
    correlation_id: int


class RaftNode:
    def __init__(
        self,
        world: World,
        node_id: int,
        config: QuorumConfig,
        formatted_with: VoterSet,
        peers: tuple[int, ...],
        checker: RaftChecker,
        injector: Injector,
    ) -> None:
        self.world = world
        self.node_id = node_id
        self.config = config
        self.peers = peers
        self.checker = checker
        self._injector = injector
        self._rng = world.rng(f"node-{node_id}")
        self._disk_rng = world.rng(f"disk-{node_id}")
        directory_id = next(
            (v.key.directory_id for v in formatted_with.voters if v.key.id == node_id), None
        )
        self.disk = RaftDisk(node_id, directory_id or new_uuid(self._rng), formatted_with)
        self.state: QuorumState | None = None  # None while down
        self.port = 9000  # changes at some restarts: the voter set must follow
        self.clock_skew_ms = 0
        self.applied_offset: Offset = 0
        self.applied_sum = 0

    # ------------------------------------------------------------ life

    def start(self) -> None:
        rng = self._rng
        self.clock_skew_ms = rng.randint(0, 1_000_000)  # monotonic clocks of hosts are unrelated
        if rng.random() < 0.2:
            self.port += 1
        self._blocked = False
        self._inbox: deque[Event] = deque()
        self._download = b""
        self._timer_at: float = float("inf")
        self.applied_offset, self.applied_sum = 0, 0
        log = self.disk.log
        if log.stored_snapshots:
            self._apply_snapshot(log.stored_snapshots[-1])
        self.state = quorum.start_quorum(
            self.disk.key,
            endpoints=(RaftEndpoint("CONTROLLER", f"host-{self.node_id}", self.port),),
            config=self.config,
            persisted=quorum.Persisted(LogView.load(log, self.disk.formatted_with), self.disk.vote),
            bootstrap=self.peers,
            rng=rng,
            now_ms=self._now_ms(),
        )
        self.checker.started(self)
        self.give(Tick())

    def crash(self, rng: Random) -> None:
        self.state = None
        self.disk.log.crash(rng)

    def wipe(self, rng: Random) -> None:
        self.checker.wiping(self)
        self.disk = RaftDisk(self.node_id, new_uuid(rng), VoterSet())

    def handle(self, source: Address, message: ToNode | FromNode) -> None:
        if isinstance(message, ToNode):
            ticket = Ticket(source, message.correlation_id)
            self.give(ReceivedRequest(ticket, message.request))
        else:
            self.give(ReceivedResponse(source.node_id, message.correlation_id, message.response))

    def failed(self, target: int, message: ToNode, refused: bool) -> None:
        self.give(RequestFailed(message.correlation_id, refused))

    def disconnected(self, source: int) -> None:
        """The long poll of a follower ends with the leader's process."""
        fetch = self.state.fetch if self.state is not None else None
        if fetch is not None and fetch.to == source:
            self.give(RequestFailed(fetch.correlation_id))

    def take_snapshot(self) -> None:
        """Writes a snapshot of the applied state; drops the log before it."""
        state = self.state
        if state is None or self._blocked or self.applied_offset == 0:
            return
        newest = state.log.snapshot
        if newest is not None and newest.id.offset >= self.applied_offset:
            return
        if state.log.start.offset > self.applied_offset:
            return
        snapshot_id = OffsetAndEpoch(
            self.applied_offset, state.log.epoch_before(self.applied_offset)
        )
        voters = state.log.voters.at(self.applied_offset)
        data = _SNAPSHOT.pack(self.applied_sum, self.checker.number_of(voters))
        info = SnapshotInfo(snapshot_id, len(data))
        self.disk.log.stored_snapshots.append(StoredSnapshot(info, voters, data))
        self.give(SnapshotCreated(info))
        if self._disk_rng.random() < 0.7:
            self.give(AdvanceLogStart())

    # ------------------------------------------------------------ events

    def give(self, event: Event) -> None:
        if self._blocked:
            self._inbox.append(event)
            return
        self._run(event)
        while self._inbox and not self._blocked:
            self._run(self._inbox.popleft())

    def _run(self, event: Event) -> None:
        state = self.state
        assert state is not None
        if isinstance(event, ReceivedRequest):
            self.checker.requested(self, event.request)
        instructions = quorum.step(state, event, self._now_ms())
        self.world.record(
            f"{self.node_id} {type(event).__name__} {state.role.name} e{state.epoch} "
            f"{state.log.end_offset} {state.high_watermark} {len(instructions)}"
        )
        self.checker.stepped(self, state)
        if isinstance(event, ReceivedRequest):
            self.checker.answered(self, state, event.request)
        self._carry_out(instructions, 0)
        self._settle(state)

    def _settle(self, state: QuorumState) -> None:
        loading = bool(self._inbox) and isinstance(self._inbox[0], SnapshotLoaded)
        if not self._blocked and not loading:
            self.checker.carried_out(self, state)
        self._arm_timer(state)

    def _now_ms(self) -> float:
        return self.world.now_ms + self.clock_skew_ms

    def _arm_timer(self, state: QuorumState) -> None:
        due = quorum.next_deadline_ms(state) - self.clock_skew_ms
        if due < self._timer_at:
            self._timer_at = due
            delay_ms = max(0, int(due - self.world.now_ms) + 1)
            self.world.after_on(self.node_id, delay_ms, self._timer_fired, due)

    def _timer_fired(self, due: float) -> None:
        if self._timer_at == due:
            self._timer_at = float("inf")
        assert self.state is not None
        if quorum.next_deadline_ms(self.state) <= self._now_ms():
            self.give(Tick())
        else:
            self._arm_timer(self.state)

    # ------------------------------------------------------------ instructions

    def _carry_out(self, instructions: list[Instruction], at: int) -> None:
        """Instructions from index `at` on; the vote file may take its time."""
        for index in range(at, len(instructions)):
            self._injector.crash_point(self.node_id)
            instruction = instructions[index]
            if isinstance(instruction, PersistVote):
                delay_ms = self._disk_ms(VOTE_FILE_MS_MAX)
                if delay_ms > 0:
                    self._blocked = True
                    self.world.after_on(
                        self.node_id, delay_ms, self._vote_persisted, instructions, index
                    )
                    return
                self._persist(instruction)
            else:
                self._carry_out_one(instruction)
        if instructions and isinstance(instructions[0], PersistVote):
            self._injector.crash_point(self.node_id, critical=True)

    def _vote_persisted(self, instructions: list[Instruction], index: int) -> None:
        vote = instructions[index]
        assert isinstance(vote, PersistVote)
        self._persist(vote)
        self._blocked = False
        self._carry_out(instructions, index + 1)
        assert self.state is not None
        self._settle(self.state)
        while self._inbox and not self._blocked:
            self._run(self._inbox.popleft())

    def _persist(self, instruction: PersistVote) -> None:
        self.disk.vote = instruction.vote

    def _carry_out_one(self, instruction: Instruction) -> None:
        world, log = self.world, self.disk.log
        self.checker.seen[type(instruction).__name__] += 1
        match instruction:
            case Send(to, correlation_id, request):
                if isinstance(request, VoteRequest) and not request.pre_vote:
                    self.checker.voting(self, request.epoch, self.key)
                world.send(self.node_id, to, ToNode(correlation_id, request))
            case Reply(ticket, response):
                self._reply(ticket, response)
            case ReplyWithRecords(ticket, fetched, from_offset):
                batches = log.read(from_offset, self.config.fetch_bytes_max)
                self._reply(ticket, replace(fetched, batches=batches))
            case ReplyWithSnapshotChunk(ticket, chunk, max_bytes):
                stored = log.stored_snapshots[-1]
                assert stored.info.id == chunk.snapshot_id
                data = stored.data[chunk.position : chunk.position + max_bytes]
                self._reply(ticket, replace(chunk, data=data))
            case AppendBatches(batches):
                self.checker.appending(self, batches)
                log.append(batches)
            case TruncateLog(end_offset):
                self.checker.truncating(self, end_offset)
                log.truncate_to(end_offset)
            case Flush(end_offset, generation):
                delay_ms = self._disk_ms(FLUSH_MS_MAX)
                world.after_on(self.node_id, delay_ms, self._flushed, end_offset, generation)
            case Commit(high_watermark):
                self._apply_to(high_watermark)
            case BecameLeader(epoch, _):
                self.checker.became_leader(self, epoch)
            case TrimLog(start_offset):
                log.trim_to(start_offset)
            case WriteSnapshotChunk(_, position, data):
                self._download = self._download[:position] + data
            case LoadSnapshot(snapshot):
                self._load_snapshot(snapshot)
            case _:
                pass  # for the controller above

    def _reply(self, ticket: object, response: Response) -> None:
        assert isinstance(ticket, Ticket)
        if ticket.address is not None:
            if isinstance(response, VoteResponse) and response.granted:
                self._check_vote(ticket.address.node_id)
            message = FromNode(ticket.correlation_id, response)
            self.world.reply(self.node_id, ticket.address, message)

    def _check_vote(self, candidate_id: int) -> None:
        state = self.state
        if state is not None and state.voted is not None and state.voted.id == candidate_id:
            self.checker.voting(self, state.epoch, state.voted)  # else it was a pre-vote

    def _disk_ms(self, longest: int) -> int:
        rng = self._disk_rng
        slow_ms = self._injector.slow_disks.get(self.node_id)
        if slow_ms is not None:
            return rng.randint(slow_ms // 2, slow_ms)
        chance = rng.random()
        if chance < SLOW_FLUSH_CHANCE:
            return rng.randint(longest, SLOW_FLUSH_MS_MAX)
        return rng.randint(0, longest) if chance < 0.5 else 0

    def _flushed(self, end_offset: Offset, generation: int) -> None:
        state = self.state
        assert state is not None
        if generation == state.log.generation:
            self.disk.log.flush(end_offset)
        self.give(Flushed(end_offset, generation))

    def _apply_to(self, high_watermark: Offset) -> None:
        while self.applied_offset < high_watermark:
            batch = self.disk.log.batch_at(self.applied_offset)
            if batch is None:
                self.checker.fail(self, f"nothing at {self.applied_offset} to commit")
                return
            self.applied_sum = checksum(batch, self.applied_sum)
            self.applied_offset = batch.end_offset
            self.checker.committed(self, batch, self.applied_sum)
        self.checker.commit_done(self, high_watermark)

    def _load_snapshot(self, snapshot: SnapshotInfo) -> None:
        assert len(self._download) == snapshot.size_bytes
        voters = self.checker.voters_by_number(_SNAPSHOT.unpack(self._download)[1])
        stored = StoredSnapshot(snapshot, voters, self._download)
        self.disk.log.load_snapshot(stored)
        self._apply_snapshot(stored)
        self._inbox.appendleft(SnapshotLoaded(snapshot, voters))

    def _apply_snapshot(self, stored: StoredSnapshot) -> None:
        self.applied_offset = stored.info.id.offset
        self.applied_sum = _SNAPSHOT.unpack(stored.data)[0]
        self.checker.snapshot_applied(self, stored.voters)

    def newest_voters_on_disk(self) -> VoterSet:
        return LogView.load(self.disk.log, self.disk.formatted_with).newest_voters

    @property
    def is_leader(self) -> bool:
        return self.state is not None and self.state.role is Role.LEADER

    @property
    def key(self) -> ReplicaKey:
        return self.disk.key


def checksum(batch: Batch, before: int) -> int:
    text = f"{batch.base_offset}+{batch.record_count}e{batch.epoch}"
    return zlib.crc32(batch.data, zlib.crc32(text.encode(), before))


def new_uuid(rng: Random) -> UUID:
    return UUID(int=rng.getrandbits(128))
