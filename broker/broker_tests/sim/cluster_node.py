"""A simulated broker: quorum node, controller, partitions and replication in one process.

Production code: the raft core (driven by raft_node.py), the controller's decisions
(`ActiveController`), the metadata images, `PartitionService` and `Partition` with the leader's
and the follower's state machines. Written anew, because the production code is tied to asyncio,
sockets or bytes: the channel to the controller, registration and heartbeats (controller_client/),
the fetcher and the fetch handler (cluster_replication.py), the log (cluster_log.py).

The metadata log is on a disk of its own: `wipe` replaces the data disk only. (What a lost
metadata disk does to the quorum is the subject of raft_run.py.)
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from broker_tests.sim.cluster_ambush import Ambusher
from broker_tests.sim.cluster_checker import ClusterChecker
from broker_tests.sim.cluster_controller import CLUSTER_ID, Records, SimController
from broker_tests.sim.cluster_log import DataDisk
from broker_tests.sim.cluster_replication import (
    Fetch,
    Fetched,
    ListedOffsets,
    ListOffsets,
    SimReplication,
)
from broker_tests.sim.raft_node import RaftNode, new_uuid
from broker_tests.sim.sim_ports import SimClock, SimScheduler, SimThreads
from broker_tests.sim.world import Address
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.features import SUPPORTED_FEATURES
from odradek_broker.metadata.image import EMPTY_IMAGE
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_broker.raft.types import (
    AppendRefused,
    BecameLeader,
    Event,
    Instruction,
    LeaderChanged,
    LostLeadership,
)
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from odradek_protocol.messages.struct import Struct

HEARTBEAT_MS = 100
CALL_TIMEOUT_MS = 200
RETRY_MS = 40
CHECKPOINT_MS = 700
LOAD_MS_MAX = 60


class Call(NamedTuple):
    """A request to the controller."""

    number: int
    kind: str
    request: Struct


class Answer(NamedTuple):
    number: int
    response: Struct


class ClusterNode(RaftNode):
    topic = "t"

    def __init__(
        self,
        *args: Any,
        cluster: ClusterChecker,
        records: Records,
        settings: Settings,
        loses_tail: Callable[[int], bool],
        ambusher: Ambusher,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        world, node_id = self.world, self.node_id
        self.cluster = cluster
        self.records = records
        self.settings = settings
        self._loses_tail = loses_tail
        self.ambusher = ambusher
        self._broker_rng = world.rng(f"broker-{node_id}")
        self.controller_rng = world.rng(f"controller-{node_id}")
        self.clock = SimClock(self, world.rng(f"wall-clock-{node_id}"))
        self.scheduler = SimScheduler(world, node_id)
        self.threads = SimThreads(world, node_id)
        self.data = DataDisk(node_id, new_uuid(self._broker_rng), cluster)
        cluster.disks[node_id] = self.data
        self.partitions: PartitionService
        self.metadata: MetadataPublisher
        self.replication: SimReplication
        self.controller: SimController
        self._stops_cleanly = False

    # ------------------------------------------------------------ life

    def start(self) -> None:
        node_id = BrokerId(self.node_id)
        self._stops_cleanly = self._wants_stop = self._ready = self._hosting = False
        self._calls: dict[int, Callable[[Struct | None], None]] = {}
        self._call_number = 0
        self._notices: list[Instruction] = []
        self._leading_from: Offset | None = None
        self.broker_epoch = -1
        self.incarnation_id = UUID(int=self._broker_rng.getrandbits(128))
        self._previous_epoch, self.data.clean_epoch = self.data.clean_epoch, -1
        self.metadata = MetadataPublisher(node_id, self.settings)
        self.controller = SimController(self)
        self.metadata.subscribe(self.controller.committed)
        self._make_partitions()
        self.partitions.attach(self.replication)
        self.metadata.subscribe(self._own_registration)
        super().start()
        self.world.after_on(self.node_id, 0, self._register)
        self.world.after_on(self.node_id, CHECKPOINT_MS, self._checkpoint)

    def _make_partitions(self) -> None:
        self.partitions = PartitionService(
            BrokerId(self.node_id),
            self.settings,
            self.data,  # type: ignore[arg-type]
            self.clock,
            self.scheduler,
            self.threads,
        )
        self.replication = self._make_replication()

    def _make_replication(self) -> SimReplication:
        return SimReplication(self)

    def crash(self, rng: Random) -> None:
        super().crash(rng)
        power_loss = not self._stops_cleanly and self._loses_tail(self.node_id)
        if power_loss:
            self.world.record(f"{self.node_id} loses what was not synced")
            if not self.cluster.durable:
                self.lose()
        self.data.crash(rng, power_loss=power_loss)

    def lose(self) -> None:
        """The disk has lost data: nothing may rely on it before the broker registers again."""
        broker = self.cluster.image.brokers.get(BrokerId(self.node_id))
        self.cluster.lost[self.node_id] = broker.incarnation_id if broker else None

    def wipe(self, rng: Random) -> None:
        self.lose()
        self.data.replace(new_uuid(rng))

    def _checkpoint(self) -> None:
        self.data.checkpoint()
        if self._broker_rng.random() < 0.5:
            self.data.flush()
        self.world.after_on(self.node_id, CHECKPOINT_MS, self._checkpoint)

    # ------------------------------------------------------------ messages

    def handle(self, source: Address, message: Any) -> None:
        match message:
            case Fetch():
                if self._hosting:
                    self.replication.serve_fetch(source, message)
            case Fetched():
                self.replication.fetched(message)
            case ListOffsets():
                if self._hosting:
                    self.replication.serve_list_offsets(source, message)
            case ListedOffsets():
                self.replication.listed(message)
            case Call(number, kind, request):
                self.controller.handle(
                    kind,
                    request,
                    lambda response: self.world.reply(
                        self.node_id, source, Answer(number, response)
                    ),
                )
            case Answer(number, response):
                self._called(number, response)
            case _:
                super().handle(source, message)

    def failed(self, target: int, message: Any, refused: bool) -> None:
        match message:
            case Fetch() | ListOffsets():
                self.replication.failed(message)
            case Call(number, _, _):
                self._called(number, None)
            case _:
                super().failed(target, message, refused)

    def disconnected(self, source: int) -> None:
        """The connection of a broker's request to the controller broke: the broker may be dead."""
        super().disconnected(source)
        self.controller.lost_contact(source)

    def call(
        self,
        kind: str,
        request: Struct,
        done: Callable[[Struct | None], None],
        timeout_ms: int,
        delays_ms: list[int] | None = None,
    ) -> None:
        """To the controller, wherever it is; `done` gets the answer, or None."""
        self._call_number += 1
        number = self._call_number
        self._calls[number] = done
        leader = self.state.leader_id if self.state is not None else None
        if leader is None:
            self.world.after_on(self.node_id, RETRY_MS, self._called, number, None)
            return
        self.world.send(self.node_id, leader, Call(number, kind, request), delays_ms)
        self.world.after_on(self.node_id, timeout_ms, self._called, number, None)

    def _called(self, number: int, response: Struct | None) -> None:
        done = self._calls.pop(number, None)
        if done is not None:
            done(response)

    # ------------------------------------------------------------ registration and heartbeats

    def _register(self) -> None:
        request = Struct(
            broker_id=BrokerId(self.node_id),
            cluster_id=CLUSTER_ID,
            incarnation_id=self.incarnation_id,
            listeners=[
                Struct(
                    name="PLAINTEXT",
                    host=f"broker-{self.node_id}",
                    port=9092,
                    security_protocol=0,
                )
            ],
            features=[
                Struct(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in SUPPORTED_FEATURES
            ],
            rack=None,
            log_dirs=self._directory_ids(),
            previous_broker_epoch=self._previous_epoch,
        )
        self.call("register_broker", request, self._registered, CALL_TIMEOUT_MS)

    def _directory_ids(self) -> list[UUID]:
        return [self.data.directory_id]

    def _offline_directory_ids(self) -> list[UUID]:
        return []

    @property
    def wants_fence(self) -> bool:
        return not self._ready

    def _registered(self, response: Struct | None) -> None:
        if response is None or response.error_code:
            self.world.after_on(self.node_id, RETRY_MS, self._register)
            return
        first = self.broker_epoch < 0
        self.broker_epoch = response.broker_epoch
        if first:
            self._heartbeat()
            self._look_for_registration()

    def _own_registration(self, delta: MetadataDelta, _: LeaderEpoch) -> None:
        if not self._hosting:
            self._look_for_registration()

    @property
    def serves(self) -> bool:
        """Clients are answered."""
        return self._ready

    def _look_for_registration(self) -> None:
        """Our registration is in the metadata: load the logs, then take roles (broker.py)."""
        own = self.metadata.image.brokers.get(BrokerId(self.node_id))
        if own is not None and own.epoch == self.broker_epoch and not self._hosting:
            self._hosting = True
            delay_ms = self._broker_rng.randint(0, LOAD_MS_MAX)
            self.world.after_on(self.node_id, delay_ms, self._host_partitions)

    def _host_partitions(self) -> None:
        metadata, partitions = self.metadata, self.partitions
        partitions.await_registration(self.broker_epoch)
        everything = MetadataDelta.between(EMPTY_IMAGE, metadata.image)
        partitions.apply(everything, metadata.controller_epoch)
        metadata.subscribe(partitions.apply)
        partitions.start_timers()
        self._ready = True
        self._look_at_roles()

    def _heartbeat(self) -> None:
        request = Struct(
            broker_id=BrokerId(self.node_id),
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.applied_offset - 1,
            want_fence=self.wants_fence,
            want_shut_down=self._wants_stop,
            offline_log_dirs=self._offline_directory_ids(),
        )
        self.call("heartbeat", request, self._heartbeat_answered, CALL_TIMEOUT_MS)

    def _heartbeat_answered(self, response: Struct | None) -> None:
        self.world.after_on(self.node_id, HEARTBEAT_MS, self._heartbeat)
        if response is None:
            return
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.stale_broker_epoch, ErrorCode.broker_id_not_registered):
            self._register()
        elif code is ErrorCode.none and response.should_shut_down and self._wants_stop:
            self._stop_cleanly()

    def shut_down(self) -> None:
        """SIGTERM."""
        self._wants_stop = True

    def _stop_cleanly(self) -> None:
        self.data.flush()
        self.data.checkpoint()
        self.data.clean_epoch = self.broker_epoch
        self._stops_cleanly = True
        self.world.record(f"{self.node_id} stops")
        self.world.crash(self.node_id)
        down_ms = self._broker_rng.randint(10, 800)
        self.world.after(down_ms, self.world.start, self.node_id)

    # ------------------------------------------------------------ the metadata log

    @property
    def log_end_offset(self) -> Offset:
        assert self.state is not None
        return self.state.log.end_offset

    def can_append(self) -> bool:
        return not self._blocked and self.is_leader

    def give(self, event: Event) -> None:
        super().give(event)
        self._deliver_notices()

    def _vote_persisted(self, instructions: list[Instruction], index: int) -> None:
        super()._vote_persisted(instructions, index)
        self._deliver_notices()

    def _carry_out_one(self, instruction: Instruction) -> None:
        super()._carry_out_one(instruction)
        if isinstance(instruction, BecameLeader | LostLeadership | LeaderChanged | AppendRefused):
            self._notices.append(instruction)

    def _deliver_notices(self) -> None:
        while self._notices:
            match self._notices.pop(0):
                case BecameLeader(_, epoch_start_offset):
                    self._leading_from = epoch_start_offset
                case LostLeadership():
                    self._leading_from = None
                    self.controller.lost_leadership()
                case LeaderChanged(leader):
                    self.controller.leader_changed(leader.leader_id)
                case AppendRefused():
                    self.cluster.appends_refused += 1
        start = self._leading_from
        if start is not None and self.applied_offset > start and self.can_append():
            assert self.state is not None
            self._leading_from = None
            self.controller.became_leader(self.state.epoch)

    def _apply_to(self, high_watermark: Offset) -> None:
        offset = self.applied_offset
        super()._apply_to(high_watermark)
        while offset < self.applied_offset:
            batch = self.disk.log.batch_at(offset)
            assert batch is not None
            offset = batch.end_offset
            if not batch.control:
                self._publish(batch.data, offset - 1, batch.epoch)
        self.controller.answer_up_to(offset)

    def _publish(self, data: bytes, last_offset: Offset, epoch: LeaderEpoch) -> None:
        before = self.metadata.image
        first = last_offset > self.cluster.image.offset
        if first:
            delta = MetadataDelta(before)
            for record in self.records.get(data):
                delta.replay(record)
            self.cluster.metadata(delta.finish(last_offset))
        self.metadata.replay(self.records.get(data), last_offset, epoch)
        self._look_at_roles()

    # ------------------------------------------------------------ partitions

    def partition(self, name: TopicPartition) -> Partition | None:
        return self.partitions.by_name.get(name)

    def _look_at_roles(self) -> None:
        life = self.world.hosts[self.node_id].life
        for partition in self.partitions.by_name.values():
            partition.validate()
            if partition.leading is not None:
                self.cluster.leads(self.node_id, life, partition.log, partition.leader_epoch)  # type: ignore[arg-type]
