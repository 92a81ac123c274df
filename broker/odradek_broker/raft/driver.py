"""Drives the quorum state machine: passes events in one at a time, carries out its instructions.

The package's docstring has the rules. Events wait while a thread makes the vote file or a
snapshot durable. Fsyncs of the log run concurrently with everything else, one at a time; flushes
that are requested while one runs share the next.

`Notice`s for the service above are delivered when no instruction is being carried out and before
the next event is handled, so the service may append from its callback. A failure of the disk, or
of an invariant, ends the driver for good: a missing node is better than one that guesses.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from odradek_broker.log.types import FileRange
from odradek_broker.raft import quorum
from odradek_broker.raft.errors import RaftError
from odradek_broker.raft.log_files import LogFiles
from odradek_broker.raft.messages import Response
from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.sender import RequestSender
from odradek_broker.raft.snapshot_files import SnapshotError
from odradek_broker.raft.types import (
    AppendBatches,
    AppendRefused,
    BecameLeader,
    Commit,
    Event,
    Flush,
    Flushed,
    Instruction,
    LeaderChanged,
    LoadSnapshot,
    LostLeadership,
    PersistVote,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshotChunk,
    Report,
    Send,
    SnapshotLoaded,
    Tick,
    TrimLog,
    TruncateLog,
    VotersChanged,
    WriteSnapshotChunk,
)
from odradek_broker.raft.values import SnapshotInfo
from odradek_broker.raft.voters import VoterSet
from odradek_broker.runtime.ports import Ports
from odradek_broker.runtime.tasks import Cancellable
from odradek_protocol.error_codes import KafkaError

logger = logging.getLogger(__name__)

NEVER = quorum.NEVER

Records = FileRange | bytes
# Takes the response to a request: the message, and the bytes that belong to it.
ReplyTo = Callable[[Response, Records | None], None]


@dataclass(frozen=True, slots=True)
class LogReplaced:
    """The log begins where this snapshot ends, and is empty."""

    snapshot: SnapshotInfo


Notice: TypeAlias = Commit | BecameLeader | LostLeadership | LeaderChanged | LogReplaced


class Driver:
    def __init__(
        self,
        files: LogFiles,
        sender: RequestSender,
        fetch_bytes_max: int,
        ports: Ports,
        *,
        on_notice: Callable[[Notice], None],
        on_idle: Callable[[], float],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """`on_idle` is called when no work is left; it returns when to call it again."""
        self.state: QuorumState | None = None  # None before `begin` and after `end`
        self._files = files
        self._sender = sender
        self._fetch_bytes_max = fetch_bytes_max
        self._clock = ports.clock
        self._loop = ports.loop
        self._threads = ports.threads
        self._on_notice = on_notice
        self._on_idle = on_idle
        self._on_failure = on_failure
        self._inbox: deque[Event] = deque()
        self._callbacks: deque[Callable[[], None]] = deque()
        self._working = False
        self._carrying = False  # instructions are being carried out
        self._paused = False  # instructions wait until a file is durable
        self._flushing = False
        self._flush_again = False
        self._timer: Cancellable | None = None
        self._timer_at_ms = NEVER

    # -- events in ----------------------------------------------------------------------------

    def begin(self, state: QuorumState) -> None:
        self.state = state
        self.give(Tick())

    def end(self) -> None:
        self.state = None
        self._inbox.clear()
        self._callbacks.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._sender.close()

    def give(self, event: Event) -> None:
        """Adds an event; it is handled now, or after the events before it."""
        if self.state is not None:
            self._inbox.append(event)
            self._work()

    def give_first(self, event: Event) -> None:
        """Handles an event before it returns; only for a leader, which never waits for its vote
        file. A leader whose process was paused for long may lose its leadership in this step."""
        assert not self._paused
        assert not self._carrying
        self._step(event)
        self._work()

    def call_when_idle(self, callback: Callable[[], None]) -> None:
        """Calls back when no instruction is being carried out."""
        if self.state is not None:
            self._callbacks.append(callback)
            self._work()

    def _work(self) -> None:
        if self._working or self._carrying:
            return
        self._working = True
        try:
            while not self._paused and self.state is not None:
                if self._callbacks:
                    self._callbacks.popleft()()
                elif self._inbox:
                    self._step(self._inbox.popleft())
                else:
                    break
        except Exception as error:  # metadata that cannot be applied: none is better than wrong
            self.fail(error)
        finally:
            self._working = False
        self._arm_timer()

    def _step(self, event: Event) -> None:
        assert self.state is not None
        state, now_ms = self.state, self._clock.monotonic_ms()
        self._guarded(lambda: self._carry_out(quorum.step(state, event, now_ms)))

    def _guarded(self, action: Callable[[], None]) -> None:
        self._carrying = True
        try:
            action()
        except Exception as error:
            self.fail(error)
        finally:
            self._carrying = False

    def fail(self, error: BaseException) -> None:
        """Ends this node's part in the quorum."""
        if self.state is None:
            return
        known = isinstance(error, OSError | KafkaError | RaftError)
        logger.error(
            "this node leaves the metadata quorum: %s", error, exc_info=None if known else error
        )
        self.end()
        self._on_failure(error if isinstance(error, Exception) else RuntimeError(error))

    # -- instructions out ---------------------------------------------------------------------

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for at, instruction in enumerate(instructions):
            if isinstance(instruction, PersistVote):
                self._persist(instruction, instructions[at + 1 :])
                return
            if isinstance(instruction, VotersChanged) and self._votes_first(instruction):
                self._pause(self._files.mark_voter, partial(self._carry_out, instructions[at:]))
                return
            if isinstance(instruction, LoadSnapshot):
                self._load_snapshot(instruction.snapshot, instructions[at + 1 :])
                return
            self._carry_out_one(instruction)

    def _votes_first(self, change: VotersChanged) -> bool:
        """Whether this node becomes a voter for the first time: its disk must be marked before."""
        assert self.state is not None
        return change.voters.voters.contains(self.state.key) and not self._files.marked_voter

    def _carry_out_one(self, instruction: Instruction) -> None:
        files = self._files
        match instruction:
            case Send():
                assert self.state is not None
                self._sender.send(self.state, instruction, self.give)
            case Reply(ticket, response):
                _answer(ticket, response, None)
            case ReplyWithRecords(ticket, response, from_offset):
                _answer(ticket, response, files.range(from_offset, self._fetch_bytes_max))
            case ReplyWithSnapshotChunk(ticket, chunk, max_bytes):
                max_bytes = min(max_bytes, self._fetch_bytes_max)
                data = files.read_snapshot_chunk(chunk.snapshot_id, chunk.position, max_bytes)
                _answer(ticket, chunk, data)
            case AppendBatches(batches):
                files.append(batches, self._clock.now_ms())
            case TruncateLog(end_offset):
                files.truncate_to(end_offset)
            case Flush():
                self._flush()
            case TrimLog(start_offset):
                files.trim_to(start_offset, self._clock.now_ms())
            case WriteSnapshotChunk(snapshot_id, position, data):
                files.write_chunk(snapshot_id, position, data)
            case Commit(high_watermark):
                files.log.high_watermark = high_watermark
                self._report(instruction)
            case BecameLeader() | LostLeadership() | LeaderChanged():
                self._report(instruction)
            case VotersChanged(voters):
                logger.info("voters are now %s", [voter.key.id for voter in voters.voters.voters])
            case Report(message):
                logger.warning("%s", message)
            case AppendRefused():
                pass  # leadership was lost in this step; LostLeadership fails the append
            case PersistVote() | LoadSnapshot():
                raise AssertionError(f"{instruction} is handled by _carry_out")

    def _report(self, notice: Notice) -> None:
        self._callbacks.append(lambda: self._on_notice(notice))

    # -- files in threads ---------------------------------------------------------------------

    def _pause(self, job: Callable[[], None], then: Callable[[], None]) -> None:
        """Runs `job` in a thread; events wait until it and `then` are done."""
        self._paused = True

        def done(error: BaseException | None) -> None:
            if self.state is None:
                return
            if error is not None:
                self.fail(error)
                return
            self._paused = False
            self._guarded(then)
            self._work()

        self._threads.run(job, done)

    def _persist(self, instruction: PersistVote, rest: Sequence[Instruction]) -> None:
        def job() -> None:
            self._files.write_vote(instruction.vote)

        self._pause(job, lambda: self._carry_out(rest))

    def _load_snapshot(self, snapshot: SnapshotInfo, rest: Sequence[Instruction]) -> None:
        """A download is complete: make it durable, then let the log begin where it ends."""
        found: list[VoterSet] = []

        def job() -> None:
            try:
                found.append(self._files.finish_download(snapshot.id))
            except SnapshotError as error:
                # The leader's file is damaged, or the download was: there is no way to continue.
                raise OSError(f"snapshot {snapshot.id}: {error}") from error

        def then() -> None:
            voters = self._files.replace_by(snapshot, found[0], self._clock.now_ms())
            self._inbox.appendleft(SnapshotLoaded(snapshot, voters))
            self._report(LogReplaced(snapshot))
            self._carry_out(rest)

        self._pause(job, then)

    def _flush(self) -> None:
        if self._flushing:
            self._flush_again = True
            return
        assert self.state is not None
        self._flushing, self._flush_again = True, False
        flushed = Flushed(self._files.log.written_offset, self.state.log.generation)

        def done(error: BaseException | None) -> None:
            self._flushing = False
            if self.state is None:
                return
            if error is not None:
                self.fail(error)
                return
            if self._flush_again:
                self._flush()
            self.give(flushed)

        self._threads.run(self._files.flush, done)

    # -- time ---------------------------------------------------------------------------------

    def _arm_timer(self) -> None:
        state = self.state
        if state is None or self._paused:
            return
        due = min(quorum.next_deadline_ms(state), self._on_idle())
        if self._timer is not None:
            if due >= self._timer_at_ms:
                return  # the timer that is set fires earlier, and sets the next
            self._timer.cancel()
        self._timer = None
        self._timer_at_ms = due
        if due != NEVER:
            delay_ms = max(0.0, due - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self.on_timer)

    def on_timer(self) -> None:
        self._timer = None
        self.give(Tick())


def _answer(ticket: object, response: Response, records: Records | None) -> None:
    assert callable(ticket)
    ticket(response, records)
