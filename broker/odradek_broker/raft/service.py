"""This node's part in the metadata quorum, as the handlers and the controller use it.

    quorum = QuorumService(files, publisher, …)
    await quorum.start(endpoints)          this node takes part from now on
    await quorum.append(records)           as leader; returns when they are committed

`driver.py` runs the state machine. This module handles its notices: it applies the metadata
(`applier.py`), starts and stops the controller, forms a new cluster. Any failure ends this node's
part in the quorum and is passed to `on_failure`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.record_codec import encode_record
from odradek_broker.metadata.records import MetadataRecord
from odradek_broker.raft import quorum
from odradek_broker.raft.applier import Applier, PendingAppend
from odradek_broker.raft.config import QuorumConfig
from odradek_broker.raft.driver import Driver, LogReplaced, Notice, Records, ReplyTo
from odradek_broker.raft.formation import Bootstrap
from odradek_broker.raft.log_files import BATCH_BYTES_MAX, LogFiles
from odradek_broker.raft.log_view import LogView
from odradek_broker.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.sender import RequestSender, WrongClusterError
from odradek_broker.raft.snapshots import Snapshots
from odradek_broker.raft.states import Role
from odradek_broker.raft.types import (
    BecameLeader,
    ClientAppend,
    Commit,
    LeaderChanged,
    LostLeadership,
    ReceivedRequest,
    Resign,
)
from odradek_broker.raft.values import (
    LeaderAndEpoch,
    NodeId,
    NodeIdentity,
    RaftEndpoint,
    ReplicaKey,
    SnapshotInfo,
)
from odradek_broker.raft.voters import Voter, VoterSet
from odradek_broker.runtime.ports import Ports
from odradek_broker.runtime.quorum_addresses import Address
from odradek_broker.runtime.slices import SLICE_MS, Slices
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import LeaderEpoch, Offset
from odradek_protocol.records.records import Record, build_batch

__all__ = ["LeadershipListener", "QuorumService", "Records", "ReplyTo"]

logger = logging.getLogger(__name__)


class LeadershipListener(Protocol):
    """The controller of this node, which is active while the node leads."""

    def became_leader(self, epoch: LeaderEpoch) -> None:
        """This node leads, and everything committed is in the publisher's image."""

    def lost_leadership(self) -> None:
        """The outcome of appends that are not committed is unknown."""


class QuorumService:
    """Invariant: an active leader never waits for its vote file: the vote changes only when
    leadership does. So `append` takes effect at once and `next_offset` is exact."""

    def __init__(
        self,
        files: LogFiles,
        publisher: MetadataPublisher,
        identity: NodeIdentity,
        config: QuorumConfig,
        bootstrap: Bootstrap,
        ports: Ports,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.key = identity.key
        self.cluster_id = identity.cluster_id
        self.listener = identity.listener
        self.endpoints: tuple[RaftEndpoint, ...] = ()
        self.publisher = publisher
        self._files = files
        self._config = config
        self._bootstrap = tuple(bootstrap.addresses)
        self._formation = bootstrap.formation
        self._clock = ports.clock
        self._loop = ports.loop
        self._rng = ports.rng
        self._on_failure = on_failure
        self._sender = RequestSender(
            ports.loop,
            identity,
            bootstrap.addresses,
            config.fetch_bytes_max,
            on_leader_heard=self._heard,
            on_wrong_cluster=self._wrong_cluster,
            security=ports.quorum_security,
        )
        self._driver = Driver(
            files,
            self._sender,
            config.fetch_bytes_max,
            ports,
            on_notice=self._on_notice,
            on_idle=self._on_idle,
            on_failure=self._failed,
        )
        self._applier = Applier(files, publisher)
        self._slices = Slices(ports.clock, ports.loop)
        self._snapshots = Snapshots(files, config.snapshots, ports.threads, ports.clock)
        self._leadership: LeadershipListener | None = None
        self._leader_watchers: list[Callable[[], None]] = []
        self._leading_from: Offset | None = None  # elected; active once this offset is committed
        self._active_epoch: LeaderEpoch | None = None

    # -- life ---------------------------------------------------------------------------------

    def attach(self, leadership: LeadershipListener) -> None:
        self._leadership = leadership

    async def start(self, endpoints: tuple[RaftEndpoint, ...]) -> None:
        """Joins the quorum, reachable at these addresses."""
        self.endpoints = endpoints
        # Records that a crash left in the page cache must not be counted and then lost.
        await asyncio.to_thread(self._files.flush)
        snapshots = self._files.snapshots()
        if snapshots:
            await self._load_first(snapshots[-1][0])
        self._files.check_memory()
        log = LogView.load(self._files, self._files.formatted_with())
        if log.newest_voters.contains(self.key):
            await asyncio.to_thread(self._files.mark_voter)
        if len(log.newest_voters) > 0 or self._files.read_vote() is not None:
            self._formation = None  # it belongs to a cluster already
        if self._formation is not None and self._formation.may_form:
            self._form()
        else:
            self._begin(log)

    def _begin(self, log: LogView) -> None:
        """Starts the state machine from what is on disk."""
        self._driver.begin(
            quorum.start_quorum(
                self.key,
                endpoints=self.endpoints,
                config=self._config,
                persisted=quorum.Persisted(log, self._files.read_vote()),
                bootstrap=self._bootstrap,
                rng=self._rng,
                now_ms=self._clock.monotonic_ms(),
            )
        )

    def _heard(self, node_id: NodeId, leader: LeaderAndEpoch) -> None:
        """While the cluster is not formed: the leader that another node reports."""
        if self._formation is None:
            return
        self._formation.heard(node_id, leader)
        if self.epoch > 0:
            self._formation = None
        elif self._formation.may_form:
            self._form()

    def _form(self) -> None:
        """Makes this node the first voter of a new cluster."""
        self._formation = None
        logger.info("node %d forms the cluster %s", self.key.id, self.cluster_id)
        voters = VoterSet((Voter(self.key, self.endpoints),))
        self._files.format(voters, self._clock.now_ms())
        self._begin(LogView.load(self._files, voters))

    async def resign(self, patience_ms: float) -> None:
        """Before a shutdown: hands over leadership, waits up to `patience_ms` for a successor."""
        state = self._driver.state
        if state is None or state.role is not Role.LEADER or not state.other_voters():
            return
        epoch = state.epoch
        handed_over = asyncio.Event()

        def look() -> None:
            if self.leader.epoch > epoch and self.leader.leader_id is not None:
                handed_over.set()

        self._leader_watchers.append(look)
        self._driver.give(Resign())
        try:
            async with asyncio.timeout(patience_ms / 1000):  # wait_for may lose a cancellation
                await handed_over.wait()
        except TimeoutError:
            logger.warning("no other node took over the quorum within %d ms", patience_ms)
        finally:
            self._leader_watchers.remove(look)

    def stop(self) -> None:
        """Leaves the quorum; pending appends fail, with an unknown outcome."""
        self._driver.end()
        self._slices.close()
        self._sender.close()
        stopping = KafkaError(ErrorCode.not_controller, "the broker is stopping")
        self._applier.forget_pending(stopping)

    def _failed(self, error: Exception) -> None:
        message = f"The metadata log failed: {error}"
        self._applier.forget_pending(KafkaError(ErrorCode.kafka_storage_error, message))
        self._on_failure(error)

    def _wrong_cluster(self, error: WrongClusterError) -> None:
        """Harmless for a member; a misconfiguration if this node never reached its cluster."""
        state = self._driver.state
        if state is not None and state.epoch == 0 and state.leader_id is None:
            self._driver.end()
            self._failed(error)

    # -- queries -------------------------------------------------------------------------------

    @property
    def state(self) -> QuorumState:
        """Read-only; only the driver changes it."""
        if self._driver.state is None:
            raise KafkaError(ErrorCode.not_controller, "this node is not in the quorum")
        return self._driver.state

    @property
    def applied_offset(self) -> Offset:
        """Everything below it is in the publisher's image."""
        return self._applier.offset

    @property
    def leader(self) -> LeaderAndEpoch:
        state = self._driver.state
        return state.leader if state else LeaderAndEpoch(None, 0)

    @property
    def is_active(self) -> bool:
        """This node leads and the controller may append."""
        state = self._driver.state
        return state is not None and state.role is Role.LEADER and self._active_epoch == state.epoch

    @property
    def waits_for(self) -> str:
        """Why there is no metadata yet, as a sentence for the readiness endpoint."""
        if self._formation is not None:
            return self._formation.waits_for
        if self.leader.leader_id is None:
            return "no leader of the metadata quorum is known"
        return f"metadata is fetched from node {self.leader.leader_id}"

    def watch_leader(self, watcher: Callable[[], None]) -> None:
        """Called after each change of `leader` and `is_active`."""
        self._leader_watchers.append(watcher)

    def leader_address(self) -> Address | None:
        """The address of the leader, if another node leads."""
        state = self._driver.state
        if state is None or state.leader_id in (None, self.key.id):
            return None
        assert state.leader_id is not None
        return self._sender.address_of(state, state.leader_id)

    def request(self, request: Request, ticket: ReplyTo) -> None:
        """A request of another node; `ticket` is called with the response, at once or later."""
        if self._driver.state is None:
            raise KafkaError(ErrorCode.broker_not_available, "this node is not in the quorum")
        self._driver.give(ReceivedRequest(ticket, request))

    # -- voters -----------------------------------------------------------------------------------

    @property
    def voters(self) -> tuple[ReplicaKey, ...]:
        return self._driver.state.voters.keys if self._driver.state else ()

    def observers(self) -> list[ReplicaKey]:
        """On the leader: replicas that fetch, are caught up and are not voters.

        A replica with the id of a live voter is left out: it is a second node that was started
        with the same id.
        """
        state = self._driver.state
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
        """The future is done when the change is committed or refused."""
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
        return self._driver.state.epoch if self._driver.state else 0

    @property
    def next_offset(self) -> Offset:
        return self.state.log.end_offset

    def append(
        self,
        records: Sequence[MetadataRecord],
        data: bytes | None = None,
        delta: MetadataDelta | None = None,
    ) -> asyncio.Future[None]:
        """Appends the records as one batch, all or none.

        Their offsets are assigned at once; the future is done when they are committed and
        published. KafkaError NOT_CONTROLLER if this node does not lead. The future fails with it
        if the node loses leadership first (also in this call, after a pause of the process); the
        outcome is unknown then. `data` is the encoded batch, if it is built already (`batch_of`),
        `delta` the finished delta of the records.
        """
        if not self.is_active:
            raise KafkaError(ErrorCode.not_controller, "this node is not the active controller")
        if data is None:
            data = self.batch_of(records)
        if len(data) > BATCH_BYTES_MAX:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{len(records)} metadata records take {len(data)} bytes, more than one batch "
                f"may have ({BATCH_BYTES_MAX})",
            )
        committed: asyncio.Future[None] = self._loop.create_future()
        self._applier.expect(
            PendingAppend(self.next_offset, self.epoch, records, len(data), committed, delta)
        )
        self._driver.give_first(ClientAppend(self.epoch, len(records), data))
        return committed

    def batch_of(self, records: Sequence[MetadataRecord]) -> bytes:
        """Encodes a batch for `append`; may be called in any thread."""
        now_ms = self._clock.now_ms()
        return build_batch(
            [Record(i, now_ms, None, encode_record(record)) for i, record in enumerate(records)]
        )

    # -- notices of the driver --------------------------------------------------------------------

    def _on_notice(self, notice: Notice) -> None:
        match notice:
            case Commit(high_watermark):
                self._slices.add(self._unless_it_fails(self._apply_to(high_watermark)))
            case BecameLeader(epoch, epoch_start_offset):
                logger.info("node %d leads the metadata quorum in epoch %d", self.key.id, epoch)
                self._leading_from = epoch_start_offset
            case LostLeadership(epoch):
                self._lost(epoch)
            case LeaderChanged(leader):
                logger.info("quorum epoch %d, leader %s", leader.epoch, leader.leader_id)
                self._notify_watchers()
            case LogReplaced(snapshot):
                self._applier.replaced()
                self._slices.add(self._unless_it_fails(self._load_image(snapshot)))

    def _unless_it_fails(self, steps: Iterator[None]) -> Iterator[None]:
        """Metadata that cannot be applied ends this node's part: none is better than wrong."""
        try:
            yield from steps
        except Exception as error:
            self._driver.fail(error)

    def _apply_to(self, high_watermark: Offset) -> Iterator[None]:
        yield from self._applier.apply_to(high_watermark)
        if self._leading_from is not None and high_watermark > self._leading_from:
            self._leading_from = None
            if self.state.role is not Role.LEADER:
                return  # deposed since; LostLeadership follows
            self._active_epoch = self.epoch
            if self._leadership is not None:
                self._leadership.became_leader(self.epoch)
            self._notify_watchers()

    def _lost(self, epoch: LeaderEpoch) -> None:
        logger.info("node %d no longer leads the metadata quorum (epoch %d)", self.key.id, epoch)
        self._leading_from = None
        message = "the controller changed; the outcome of the request is unknown"
        self._applier.forget_pending(KafkaError(ErrorCode.not_controller, message))
        if self._active_epoch is not None:
            self._active_epoch = None
            if self._leadership is not None:
                self._leadership.lost_leadership()

    def _notify_watchers(self) -> None:
        for watcher in tuple(self._leader_watchers):
            watcher()

    # -- snapshots ----------------------------------------------------------------------------

    async def _load_first(self, snapshot: SnapshotInfo) -> None:
        """At the start, in slices: other brokers may ask for votes in the meantime."""
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        for _ in self._load_image(snapshot):
            if self._clock.monotonic_ms() >= until_ms:
                await asyncio.sleep(0)
                until_ms = self._clock.monotonic_ms() + SLICE_MS

    def _load_image(self, snapshot: SnapshotInfo) -> Iterator[None]:
        yield from self._applier.load(snapshot)
        self._snapshots.loaded(snapshot)

    def _on_idle(self) -> float:
        """Takes a snapshot if one is due; returns when the next is due."""
        if self._snapshots.is_due(self._applier.offset, self._applier.bytes_since_snapshot):
            self._applier.bytes_since_snapshot = 0
            state = self.state
            self._snapshots.take(
                self._applier.offset, self.publisher.image, state.log, self._driver
            )
        return self._snapshots.due_ms(self._applier.offset)
