"""Drives the quorum state machine: files, timers, network, and the controller above.

    quorum = QuorumService(files, publisher, …)
    await quorum.start(endpoints)          this node takes part from now on
    await quorum.append(records)           as leader; done when they are committed

One event at a time goes into `step`, and its instructions are carried out before the next one
(the package's docstring has the rules). What concerns the parts above (committed records, won
or lost leadership) is told after that, so they may append from within.

The metadata of this broker comes out of it: `publisher` gets committed records and snapshots in
the order of the log. Any failure of the disk or of a rule that must hold ends the service and
is given to `on_failure`: a node that guesses is worse than one that is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from odradek_broker.log.errors import LogDirError
from odradek_broker.log.types import FileRange
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.record_codec import decode_record, encode_record
from odradek_broker.metadata.records import MetadataRecord
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.model.ids import LeaderEpoch, Offset
from odradek_broker.raft import quorum
from odradek_broker.raft.errors import RaftError
from odradek_broker.raft.formation import Formation
from odradek_broker.raft.log_files import BATCH_BYTES_MAX, LogFiles
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.messages import (
    AddVoterRequest,
    FetchResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from odradek_broker.raft.quorum_state import QuorumConfig, QuorumState
from odradek_broker.raft.sender import Sender, WrongClusterError
from odradek_broker.raft.snapshot_files import SnapshotError, read_metadata_records
from odradek_broker.raft.snapshots import SnapshotPolicy, Snapshots
from odradek_broker.raft.states import Role
from odradek_broker.raft.types import (
    Append,
    AppendRefused,
    BecameLeader,
    ClientAppend,
    Commit,
    Event,
    Flush,
    Flushed,
    Instruction,
    LeaderChanged,
    LoadSnapshot,
    LostLeadership,
    PersistVote,
    ReceivedRequest,
    ReceivedResponse,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshotChunk,
    Report,
    Resign,
    Send,
    SnapshotLoaded,
    Tick,
    TrimLog,
    Truncate,
    VotersChanged,
    WriteSnapshotChunk,
)
from odradek_broker.raft.values import (
    Endpoint,
    LeaderAndEpoch,
    NodeId,
    ReplicaKey,
    SnapshotInfo,
)
from odradek_broker.raft.voters import Voter, VoterSet
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.quorum_addresses import Address
from odradek_broker.runtime.tasks import Cancellable, Threads
from odradek_broker.wire.errors import DecodeError
from odradek_broker.wire.record_batch import read_header
from odradek_broker.wire.records import Record, build_batch, read_records

logger = logging.getLogger(__name__)

READ_BYTES = 1 << 20  # of the log at a time, when committed records are applied

Records = FileRange | bytes
# Where the answer to a request goes: the message, and the bytes that belong to it.
Ticket = Callable[[Response, Records | None], None]


class Leadership(Protocol):
    """The controller, as the quorum sees it."""

    def became_leader(self, epoch: LeaderEpoch) -> None:
        """This node leads, and all that is committed is in the publisher's image."""

    def lost_leadership(self) -> None:
        """Of what was appended and not committed nobody knows the outcome."""


class PendingAppend(NamedTuple):
    base_offset: Offset
    records: Sequence[MetadataRecord]
    size_bytes: int
    committed: asyncio.Future[None]

    @property
    def end_offset(self) -> Offset:
        return self.base_offset + len(self.records)


@dataclass(frozen=True, slots=True)
class Identity:
    key: ReplicaKey
    cluster_id: str
    listener: str  # the name of the one that brokers reach each other on


class QuorumService:
    """Invariant: an active leader never waits for its vote file: the vote changes only when
    leadership does. So `append` takes effect at once and `next_offset` is exact."""

    def __init__(
        self,
        files: LogFiles,
        publisher: MetadataPublisher,
        identity: Identity,
        config: QuorumConfig,
        *,
        bootstrap: Mapping[NodeId, Address],
        formation: Formation | None,
        snapshot_policy: SnapshotPolicy,
        fetch_bytes_max: int,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        threads: Threads,
        rng: Random,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.publisher = publisher
        self.key = identity.key
        self.cluster_id = identity.cluster_id
        self.listener = identity.listener
        self.endpoints: tuple[Endpoint, ...] = ()
        self.applied_offset: Offset = 0  # all below is in the publisher's image
        self._files = files
        self._config = config
        self._bootstrap = bootstrap
        self._formation = formation
        self._fetch_bytes_max = fetch_bytes_max
        self._clock = clock
        self._loop = loop
        self._threads = threads
        self._rng = rng
        self._on_failure = on_failure
        self._sender = Sender(
            loop,
            identity.cluster_id,
            identity.listener,
            bootstrap,
            fetch_bytes_max,
            client_id=f"broker-{identity.key.id}-quorum",
            on_wrong_cluster=self._wrong_cluster,
        )
        self._snapshots = Snapshots(files, snapshot_policy, threads, clock)
        self._state: QuorumState | None = None  # None before start and after the end
        self._leadership: Leadership | None = None
        self._leader_watchers: list[Callable[[], None]] = []
        self._inbox: deque[Event] = deque()
        self._news: deque[Callable[[], None]] = deque()  # told before the next event
        self._working = False
        self._carrying = False  # instructions are being carried out
        self._paused = False  # instructions wait for a file to be durable
        self._appends: deque[PendingAppend] = deque()
        self._leading_from: Offset | None = None  # elected; active once this is committed
        self._active_epoch: LeaderEpoch | None = None
        self._flushing = False
        self._flush_again = False
        self._timer: Cancellable | None = None
        self._timer_at_ms = quorum.NEVER

    # -- life ---------------------------------------------------------------------------------

    def attach(self, leadership: Leadership) -> None:
        self._leadership = leadership

    async def start(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Takes part from now on, under these addresses."""
        self.endpoints = endpoints
        # What a crash left in the page cache must not be counted and then lost.
        await asyncio.to_thread(self._files.flush)
        snapshots = self._files.snapshots()
        if snapshots:
            self._load_image(snapshots[-1][0])
        if self._knows_of_a_cluster():
            self._formation = None
        elif self._formation is not None and self._formation.may_form:
            self._form()
            return
        self._begin()

    def _knows_of_a_cluster(self) -> bool:
        files = self._files
        return bool(files.formatted_with() or files.end_offset or files.read_vote())

    def _begin(self) -> None:
        """From what the disk remembers."""
        self._state = quorum.start_quorum(
            self.key,
            endpoints=self.endpoints,
            config=self._config,
            log=LogView.load(self._files, self._files.formatted_with()),
            vote=self._files.read_vote(),
            bootstrap=tuple(self._bootstrap),
            rng=self._rng,
            now_ms=self._clock.monotonic_ms(),
        )
        self.give(Tick())

    async def resign(self, patience_ms: float) -> None:
        """Before a shutdown: hand leadership over, and wait a little for the successor."""
        state = self._state
        if state is None or state.role is not Role.LEADER or not state.other_voters():
            return
        epoch = state.epoch
        handed_over = asyncio.Event()

        def look() -> None:
            if self.leader.epoch > epoch and self.leader.leader_id is not None:
                handed_over.set()

        self._leader_watchers.append(look)
        self.give(Resign())
        try:
            await asyncio.wait_for(handed_over.wait(), patience_ms / 1000)
        except TimeoutError:
            logger.warning("no other node took over the quorum within %d ms", patience_ms)
        finally:
            self._leader_watchers.remove(look)

    def stop(self) -> None:
        """Takes part no longer; whoever waits for a commit does not learn its outcome."""
        self._end(KafkaError(ErrorCode.not_controller, "the broker is stopping"))

    def _end(self, error: Exception) -> None:
        self._state = None
        self._inbox.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._sender.close()
        self._fail_appends(error)

    def _fail(self, error: Exception) -> None:
        if self._state is None:
            return
        logger.error("this node leaves the metadata quorum: %s", error)
        self._end(KafkaError(ErrorCode.kafka_storage_error, f"The metadata log failed: {error}"))
        self._on_failure(error)

    def _wrong_cluster(self, error: WrongClusterError) -> None:
        """Harmless to a member, a misconfiguration of one that never got in touch."""
        state = self._state
        if state is not None and state.epoch == 0 and state.leader_id is None:
            self._fail(error)

    # -- what others ask ------------------------------------------------------------------------

    @property
    def state(self) -> QuorumState:
        """For those who describe it; changed only here."""
        if self._state is None:
            raise KafkaError(ErrorCode.not_controller, "this node is not in the quorum")
        return self._state

    @property
    def leader(self) -> LeaderAndEpoch:
        return self._state.leader if self._state else LeaderAndEpoch(None, 0)

    @property
    def is_active(self) -> bool:
        """This node leads and the controller may append."""
        state = self._state
        return (
            state is not None and self._active_epoch == state.epoch and (state.role is Role.LEADER)
        )

    @property
    def waits_for(self) -> str:
        """Why there is no metadata yet, for a person."""
        if self._formation is not None:
            return self._formation.waits_for
        if self.leader.leader_id is None:
            return "no leader of the metadata quorum is known"
        return f"metadata is fetched from node {self.leader.leader_id}"

    def watch_leader(self, watcher: Callable[[], None]) -> None:
        """Called after each change of `leader` and `is_active`."""
        self._leader_watchers.append(watcher)

    def leader_address(self) -> Address | None:
        """Where the leader is reached, if another node leads."""
        state = self._state
        if state is None or state.leader_id in (None, self.key.id):
            return None
        assert state.leader_id is not None
        return self._sender.address_of(state, state.leader_id)

    def request(self, request: Request, ticket: Ticket) -> None:
        """A request of another node; `ticket` is called with the answer, at once or later."""
        if self._state is None:
            raise KafkaError(ErrorCode.broker_not_available, "this node is not in the quorum")
        self.give(ReceivedRequest(ticket, request))

    # -- voters -----------------------------------------------------------------------------------

    @property
    def voters(self) -> tuple[ReplicaKey, ...]:
        return self._state.voters.keys if self._state else ()

    def observers(self) -> list[ReplicaKey]:
        """As leader: those that fetch, are caught up and do not vote.

        One with the id of a voter that is alive is not among them: somebody started a second
        node under that id.
        """
        state = self._state
        if state is None or state.leadership is None:
            return []
        progress = state.leadership.progress
        oldest_ms = self._clock.monotonic_ms() - self._config.fetch_timeout_ms
        alive = {
            key.id
            for key in state.voters.keys
            if key in progress and (progress[key].last_fetch_ms > oldest_ms)
        }
        return [
            key
            for key, seen in progress.items()
            if not state.voters.contains(key)
            and seen.caught_up_ms > oldest_ms
            and key.id not in (*alive, self.key.id)
        ]

    def change_voters(
        self, request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
    ) -> asyncio.Future[VoterChangeResponse]:
        """Done when the change is committed or refused."""
        answered: asyncio.Future[VoterChangeResponse] = self._loop.create_future()

        def ticket(response: Response, _: Records | None) -> None:
            assert isinstance(response, VoterChangeResponse)
            if not answered.done():
                answered.set_result(response)

        self.request(request, ticket)
        return answered

    # -- the log, for the controller --------------------------------------------------------------

    @property
    def epoch(self) -> LeaderEpoch:
        return self._state.epoch if self._state else 0

    @property
    def next_offset(self) -> Offset:
        return self.state.log.end_offset

    def append(self, records: Sequence[MetadataRecord]) -> asyncio.Future[None]:
        """Append as one batch: all of them or none. Their offsets are given at once; the
        future is done when they are committed and published. KafkaError: NOT_CONTROLLER if
        this node does not lead, or (then the outcome is unknown) does no longer."""
        if not self.is_active:
            raise KafkaError(ErrorCode.not_controller, "this node is not the active controller")
        assert not self._paused
        assert not self._carrying
        now_ms = self._clock.now_ms()
        data = build_batch(
            [Record(i, now_ms, None, encode_record(record)) for i, record in enumerate(records)]
        )
        if len(data) > BATCH_BYTES_MAX:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{len(records)} metadata records take {len(data)} bytes, more than one batch "
                f"may have ({BATCH_BYTES_MAX})",
            )
        committed = self._loop.create_future()
        pending = PendingAppend(self.next_offset, records, len(data), committed)
        self._appends.append(pending)
        self._step(ClientAppend(self.epoch, len(records), data))
        self._work()
        return committed

    def _fail_appends(self, error: Exception) -> None:
        appends, self._appends = self._appends, deque()
        for pending in appends:
            if not pending.committed.done():
                pending.committed.set_exception(error)
                pending.committed.exception()  # nobody has to listen

    # -- events in, instructions out ---------------------------------------------------------------

    def give(self, event: Event) -> None:
        """One more event; handled now, or when those before it are."""
        if self._state is not None:
            self._inbox.append(event)
            self._work()

    def tell(self, news: Callable[[], None]) -> None:
        """Call `news` when no instruction is under way."""
        if self._state is not None:
            self._news.append(news)
            self._work()

    def _work(self) -> None:
        if self._working or self._carrying:
            return
        self._working = True
        try:
            while not self._paused and self._state is not None:
                if self._news:
                    self._news.popleft()()
                elif self._inbox:
                    event = self._inbox.popleft()
                    self._look_at(event)
                    self._step(event)
                else:
                    break
        except (LogDirError, OSError, DecodeError, AssertionError) as error:
            self._fail(error)
        finally:
            self._working = False
        if self._state is not None:
            self._snapshots.take_if_due(self)
            self._arm_timer()

    def _step(self, event: Event) -> None:
        now_ms = self._clock.monotonic_ms()
        self._guarded(lambda: self._carry_out(quorum.step(self.state, event, now_ms)))

    def _guarded(self, action: Callable[[], None]) -> None:
        self._carrying = True
        try:
            action()
        except (RaftError, LogDirError, OSError, KafkaError, AssertionError) as error:
            self._fail(error)
        finally:
            self._carrying = False

    def _look_at(self, event: Event) -> None:
        """A cluster that is to be formed listens to what the others know."""
        if self._formation is None or not isinstance(event, ReceivedResponse):
            return
        if self.epoch > 0:
            self._formation = None
        elif isinstance(event.response, FetchResponse):
            self._formation.heard(event.source, event.response.leader)
            if self._formation.may_form:
                self._loop.call_soon(self._form)

    def _form(self) -> None:
        """This node is the first voter of a new cluster."""
        if self._formation is None or self.epoch > 0:
            return
        self._formation = None
        logger.info("node %d forms the cluster %s", self.key.id, self.cluster_id)
        voters = VoterSet((Voter(self.key, self.endpoints),))
        self._files.format(voters, self._clock.now_ms())
        self._begin()

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for at, instruction in enumerate(instructions):
            if isinstance(instruction, PersistVote):
                self._persist(instruction, instructions[at + 1 :])
                return
            if isinstance(instruction, LoadSnapshot):
                self._load_snapshot(instruction.snapshot, instructions[at + 1 :])
                return
            self._carry_out_one(instruction)

    def _persist(self, instruction: PersistVote, rest: Sequence[Instruction]) -> None:
        def job() -> None:
            self._files.write_vote(instruction.vote)

        self._pause(job, lambda: self._carry_out(rest))

    def _pause(self, job: Callable[[], None], then: Callable[[], None]) -> None:
        """`job` in a thread; events wait until it and `then` are done."""
        self._paused = True

        def done(error: BaseException | None) -> None:
            if self._state is None:
                return
            if error is not None:
                self._fail(error if isinstance(error, Exception) else RuntimeError(error))
                return
            self._paused = False
            self._guarded(then)
            self._work()

        self._threads.run(job, done)

    def _carry_out_one(self, instruction: Instruction) -> None:
        files = self._files
        match instruction:
            case Send():
                self._sender.send(self.state, instruction, self.give)
            case Reply(ticket, response):
                _answer(ticket, response, None)
            case ReplyWithRecords(ticket, response, from_offset):
                _answer(ticket, response, files.range(from_offset, self._fetch_bytes_max))
            case ReplyWithSnapshotChunk(ticket, chunk, max_bytes):
                max_bytes = min(max_bytes, self._config.snapshot_chunk_bytes)
                data = files.read_snapshot_chunk(chunk.snapshot_id, chunk.position, max_bytes)
                _answer(ticket, chunk, data)
            case Append(batches):
                files.append(batches, self._clock.now_ms())
            case Truncate(end_offset):
                files.truncate_to(end_offset)
            case Flush():
                self._flush()
            case TrimLog(start_offset):
                files.trim_to(start_offset, self._clock.now_ms())
            case WriteSnapshotChunk(snapshot_id, position, data):
                files.write_chunk(snapshot_id, position, data)
            case Commit(high_watermark):
                files.log.high_watermark = high_watermark
                self._news.append(lambda: self._apply_to(high_watermark))
            case BecameLeader(epoch, epoch_start_offset):
                self._news.append(lambda: self._elected(epoch, epoch_start_offset))
            case LostLeadership(epoch):
                self._news.append(lambda: self._lost(epoch))
            case LeaderChanged(leader):
                self._news.append(lambda: self._leader_changed(leader))
            case VotersChanged(voters):
                logger.info("voters are now %s", [voter.key.id for voter in voters.voters.voters])
            case Report(message):
                logger.warning("%s", message)
            case AppendRefused():
                raise AssertionError("refused although this node leads")
            case PersistVote() | LoadSnapshot():
                raise AssertionError("carried out in a thread")

    # -- flushing -----------------------------------------------------------------------------

    def _flush(self) -> None:
        """One fsync at a time; those asked for while it runs share the next."""
        if self._flushing:
            self._flush_again = True
            return
        self._flushing, self._flush_again = True, False
        flushed = Flushed(self._files.log.written_offset, self.state.log.generation)

        def done(error: BaseException | None) -> None:
            self._flushing = False
            if self._state is None:
                return
            if error is not None:
                self._fail(error if isinstance(error, Exception) else RuntimeError(error))
                return
            if self._flush_again:
                self._flush()
            self.give(flushed)

        self._threads.run(self._files.flush, done)

    # -- snapshots ------------------------------------------------------------------------------

    def _load_snapshot(self, snapshot: SnapshotInfo, rest: Sequence[Instruction]) -> None:
        """A download is whole: make it durable, then let the log begin where it ends."""
        found: list[VoterSet] = []

        def job() -> None:
            try:
                found.append(self._files.finish_download(snapshot.id))
            except SnapshotError as error:
                # The leader's file is damaged, or ours on the way: nothing to go on with.
                raise OSError(f"snapshot {snapshot.id}: {error}") from error

        def then() -> None:
            voters = self._files.replace_by(snapshot, found[0], self._clock.now_ms())
            self._inbox.appendleft(SnapshotLoaded(snapshot, voters))
            self._news.append(lambda: self._load_image(snapshot))
            self._carry_out(rest)

        self._pause(job, then)

    def _load_image(self, snapshot: SnapshotInfo) -> None:
        records = map(decode_record, read_metadata_records(self._files.read_snapshot(snapshot.id)))
        self.publisher.load(records, snapshot.id.offset - 1, snapshot.id.epoch)
        self.applied_offset = snapshot.id.offset
        self._snapshots.loaded(snapshot)

    # -- news for those above ---------------------------------------------------------------------

    def _elected(self, epoch: LeaderEpoch, epoch_start_offset: Offset) -> None:
        logger.info("node %d leads the metadata quorum in epoch %d", self.key.id, epoch)
        self._leading_from = epoch_start_offset

    def _lost(self, epoch: LeaderEpoch) -> None:
        logger.info("node %d no longer leads the metadata quorum (epoch %d)", self.key.id, epoch)
        self._leading_from = None
        message = "the controller changed; whether the request was carried out is unknown"
        self._fail_appends(KafkaError(ErrorCode.not_controller, message))
        if self._active_epoch is not None:
            self._active_epoch = None
            if self._leadership is not None:
                self._leadership.lost_leadership()

    def _leader_changed(self, leader: LeaderAndEpoch) -> None:
        logger.info("quorum epoch %d, leader %s", leader.epoch, leader.leader_id)
        self._tell_watchers()

    def _tell_watchers(self) -> None:
        for watcher in tuple(self._leader_watchers):
            watcher()

    def _apply_to(self, high_watermark: Offset) -> None:
        """Committed records into the image; then those who wait for them are answered."""
        while self.applied_offset < high_watermark:
            pending = self._appends[0] if self._appends else None
            if pending is not None and pending.base_offset == self.applied_offset:
                self._appends.popleft()
                self._snapshots.count(pending.size_bytes)
                self.applied_offset = pending.end_offset
                last_offset = pending.end_offset - 1
                self.publisher.replay(pending.records, last_offset, self.epoch)
                if not pending.committed.done():
                    pending.committed.set_result(None)
            else:
                end = min(high_watermark, pending.base_offset if pending else high_watermark)
                self._apply_from_log(end)
        if self._leading_from is not None and high_watermark > self._leading_from:
            self._leading_from = None
            self._active_epoch = self.epoch
            if self._leadership is not None:
                self._leadership.became_leader(self.epoch)
            self._tell_watchers()

    def _apply_from_log(self, end: Offset) -> None:
        """Batches below `end`, as many as are read at a time and are of one epoch."""
        records: list[MetadataRecord] = []
        epoch = None
        for batch in self._files.read(self.applied_offset, READ_BYTES):
            if batch.base_offset >= end or (epoch is not None and batch.epoch != epoch):
                break
            epoch = batch.epoch
            self.applied_offset = batch.end_offset
            self._snapshots.count(len(batch.data))
            if not read_header(batch.data).is_control:
                values = (record.value or b"" for record in read_records(batch.data))
                records += map(decode_record, values)
        assert epoch is not None, f"nothing at {self.applied_offset} below {end}"
        if records:
            self.publisher.replay(records, self.applied_offset - 1, epoch)

    # -- time -----------------------------------------------------------------------------------

    def _arm_timer(self) -> None:
        state = self._state
        if state is None or self._paused:
            return
        due = min(quorum.next_deadline_ms(state), self._snapshots.due_ms(self.applied_offset))
        if self._timer is not None:
            if due >= self._timer_at_ms:
                return  # it fires earlier and looks again
            self._timer.cancel()
        self._timer = None
        self._timer_at_ms = due
        if due != quorum.NEVER:
            delay_ms = max(0.0, due - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.give(Tick())


def _answer(ticket: object, response: Response, records: Records | None) -> None:
    assert callable(ticket)
    ticket(response, records)
