"""A broker: puts the parts together, starts them in order, stops them in reverse.

The only module that knows all classes; `main.py` runs it as a process. Start-up, in the order in
which things may fail: sockets bound (a taken port is said at once), logs loaded or recovered,
metadata replayed, partitions hosted, clients accepted; then one JSON line on stdout says `ready`.
"""

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from functools import partial
from random import Random
from uuid import UUID, uuid4

from odradek_broker.admin_front import AdminFront, StartError
from odradek_broker.controller.seat import ControllerSeat
from odradek_broker.controller.service import ControllerService
from odradek_broker.controller_client.channel import ControllerChannel
from odradek_broker.controller_client.lifecycle import (
    BrokerLifecycle,
    Incarnation,
    LogDirectories,
    RegistrationError,
)
from odradek_broker.controller_client.producer_id_blocks import ProducerIdBlocks
from odradek_broker.coordinator.internal_topics import OFFSETS_TOPIC
from odradek_broker.coordinator.service import CoordinatorService, CoordinatorTopic
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.consumer.service import ConsumerGroupService
from odradek_broker.group.kinds import new_shard
from odradek_broker.group.lag import LogEnds
from odradek_broker.group.metrics import GroupMetrics
from odradek_broker.group.service import GroupService
from odradek_broker.handlers import add_partitions_to_txn, write_txn_markers
from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.fetch_session import FetchSessions
from odradek_broker.handlers.registry import build_handlers
from odradek_broker.log.cleaner_manager import CleanerConfig, CleanerManager
from odradek_broker.log.dir_identity import META_PROPERTIES, claim_identity
from odradek_broker.log.errors import LogDirError
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.manager import LogManager
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.model.log_config import LogConfig
from odradek_broker.network.server import Server
from odradek_broker.partition.service import PartitionService
from odradek_broker.raft.log_files import open_metadata_log
from odradek_broker.raft.opening import open_quorum
from odradek_broker.raft.service import QuorumService
from odradek_broker.raft.values import NodeIdentity, RaftEndpoint, ReplicaKey
from odradek_broker.replication.service import ReplicationService
from odradek_broker.runtime.clock import SystemClock
from odradek_broker.runtime.collector import ShortPauses
from odradek_broker.runtime.descriptors import CONNECTIONS_MIN, current_limit, share
from odradek_broker.runtime.disk import Disk, RealDisk
from odradek_broker.runtime.event_loop import EndOfPass, PollerLoop
from odradek_broker.runtime.listeners import Listener
from odradek_broker.runtime.loop_lag import LoopLag
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.peer import Peer
from odradek_broker.runtime.ports import RuntimePorts
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tasks import LoopThreads
from odradek_broker.storage import StorageFailedError, StorageWatch, metadata_log_failed
from odradek_broker.txn import verifier
from odradek_broker.txn.channels import BrokerCalls
from odradek_broker.txn.markers import MarkerSender
from odradek_broker.txn.service import TransactionCoordinator
from odradek_broker.txn.verifier import TransactionVerifier
from odradek_protocol.ids import BrokerId, TopicPartition

logger = logging.getLogger(__name__)

# After this long without being ready, /readyz goes up first, so that one can see why.
SLOW_START_SECONDS = 0.5
DRAIN_SECONDS = 5.0
# Without a disk nothing more can be answered well; clients should look elsewhere soon.
DRAIN_WITHOUT_DISK_SECONDS = 0.2
HOUSEKEEPING_SECONDS = 1.0
SETTLED_CHECK_SECONDS = 0.01


class Broker:
    """One running broker. `start` returns when clients are served; `stop` leaves clean logs."""

    def __init__(self, settings: Settings, loop: PollerLoop, front: AdminFront) -> None:
        self._settings = settings
        self._loop = loop
        self._started_at = time.monotonic()
        self._clock = SystemClock()
        self._front = front
        self._readiness = front.readiness
        self._disk = RealDisk()
        self._node_id = BrokerId(settings.node_id)
        self._rng = Random()
        self._threads = LoopThreads(loop)
        self._metrics = Metrics()
        self.failure: asyncio.Future[None] = loop.create_future()  # only ever an exception
        _check_cluster_id(settings, self._disk)
        self._logs = LogManager(
            [str(path) for path in settings.log_dirs],
            self._disk,
            self._clock,
            LogSettings.of(settings),
        )
        self._cleaner = CleanerManager(
            self._logs.logs,
            lambda: CleanerConfig.of(settings),
            self._clock,
            loop.call_soon_threadsafe,
        )
        self._metadata = MetadataPublisher(self._node_id, settings)
        self._partitions = PartitionService(
            self._node_id, settings, self._logs, self._clock, EndOfPass(loop), self._threads
        )
        self._quorum = self._build_quorum()
        self._controller = ControllerService(
            settings,
            self._rng,
            self._quorum,
            self._metadata,
            self._logs.cluster_id,
            self._clock,
            loop,
        )
        self._seat = ControllerSeat(
            self._controller, self._quorum, self._metadata, self._clock, loop
        )
        self._channels: list[ControllerChannel] = []
        self._lifecycle = self._build_lifecycle()
        self._partitions.cut_off = lambda: self._lifecycle.cut_off
        self._replication = self._build_replication()
        self._groups = self._build_groups()
        self._context = self._build_context()
        self._calls = self._build_transactions()
        handlers = build_handlers(self._metrics)
        self._descriptors = share(current_limit())
        self._server = Server(self._context, handlers, loop, loop.poller, self._descriptors)
        self._server.receiving.on_starved = self._memory_starved
        session_timeout_ms = settings.int("broker.session.timeout.ms")
        self._storage = self._build_storage()
        self._lag = LoopLag(loop, self._clock, self._metrics, session_timeout_ms)
        self._collector = ShortPauses()
        self._tasks: list[asyncio.Task[None]] = []
        self._registered = False

    def _build_quorum(self) -> QuorumService:
        settings, cluster_id = self._settings, self._logs.cluster_id
        now_ms = self._clock.now_ms()
        path = settings.metadata_log_dir
        try:
            metadata_log = open_metadata_log(path, self._disk, settings, now_ms)
        except OSError as error:
            raise metadata_log_failed(str(path), error) from error
        return open_quorum(
            settings,
            metadata_log,
            self._metadata,
            NodeIdentity(
                ReplicaKey(self._node_id, _metadata_directory_id(settings, self._disk, cluster_id)),
                cluster_id,
                settings.listeners.inter_broker_name,
            ),
            RuntimePorts(self._clock, self._loop, self._threads, self._rng),
            self._metadata_log_failed,
        )

    def _build_lifecycle(self) -> BrokerLifecycle:
        logs = self._logs
        return BrokerLifecycle(
            Incarnation(self._node_id, logs.cluster_id, uuid4(), logs.previous_broker_epoch),
            self._settings,
            self._channel("lifecycle"),
            self._metadata,
            LogDirectories(
                lambda: logs.directory_ids, lambda: [d.directory_id for d in logs.offline_dirs]
            ),
            applied_offset=lambda: self._quorum.applied_offset,
            on_failure=self._failed,
        )

    def _build_storage(self) -> StorageWatch:
        return StorageWatch(
            self._settings,
            self._disk,
            self._logs,
            clock=self._clock,
            rng=self._rng,
            loop=self._loop,
            metadata=self._metadata,
            partitions=self._partitions,
            lifecycle=self._lifecycle,
            quorum=self._quorum,
            readiness=self._readiness,
            on_end=self._failed,
        )

    def _build_replication(self) -> ReplicationService:
        client_id = f"broker-{self._node_id}-fetcher"
        return ReplicationService(
            self._settings,
            self._clock,
            self._threads,
            self._partitions,
            lambda host, port: Peer(host, port, self._loop, client_id=client_id),
            self._channel("replication"),
        )

    def _build_transactions(self) -> list[BrokerCalls]:
        """Markers and questions have connections of their own: none waits for the other."""
        context, node_id = self._context, self._node_id

        def image() -> MetadataImage:
            return self._partitions.image

        def calls(purpose: str) -> BrokerCalls:
            client_id = f"broker-{node_id}-{purpose}"
            return BrokerCalls(
                node_id,
                self._settings.listeners.inter_broker_name,
                image,
                {
                    add_partitions_to_txn.API_KEY: partial(
                        add_partitions_to_txn.batched, context, version=verifier.VERSION
                    ),
                    write_txn_markers.API_KEY: partial(write_txn_markers.write_markers, context),
                },
                lambda host, port: Peer(host, port, self._loop, client_id=client_id),
            )

        questions, markers = calls("txn-verifier"), calls("txn-markers")
        context.verifier = TransactionVerifier(questions, image, self._settings)
        self._markers = MarkerSender(markers, image)
        return [questions, markers]

    def _build_groups(self) -> GroupService:
        settings, metrics = self._settings, GroupMetrics()
        coordinator = CoordinatorService(
            CoordinatorTopic(
                OFFSETS_TOPIC,
                default_partitions=settings.int("offsets.topic.num.partitions"),
                write_timeout_ms=settings.int("offsets.commit.timeout.ms"),
                codec=settings.int("offsets.topic.compression.codec"),
            ),
            lambda _: new_shard(lambda: GroupConfig.of(settings), self._rng, metrics),
            self._partitions,
            self._clock,
            self._loop,
        )
        return GroupService(coordinator, settings, metrics)

    def _build_context(self) -> BrokerContext:
        slots = self._settings.int("max.incremental.fetch.session.cache.slots")
        producer_ids = ProducerIdBlocks(
            self._node_id, lambda: self._lifecycle.broker_epoch, self._channel("producer-ids")
        )
        return BrokerContext(
            node_id=self._node_id,
            cluster_id=self._logs.cluster_id,
            settings=self._settings,
            clock=self._clock,
            rng=self._rng,
            metrics=self._metrics,
            logs=self._logs,
            cleaner=self._cleaner,
            partitions=self._partitions,
            metadata=self._metadata,
            quorum=self._quorum,
            controller=self._controller,
            forwarder=self._channel("forwarder"),
            producer_ids=producer_ids,
            fetch_sessions=FetchSessions(slots, self._rng),
            transactions=TransactionCoordinator(
                self._settings, self._partitions, self._clock, self._loop, producer_ids.next
            ),
            groups=self._groups,
            consumer_groups=ConsumerGroupService(self._groups.coordinator, self._settings),
            log_ends=LogEnds(
                self._groups, self._partitions, self._settings.listeners.inter_broker_name
            ),
        )

    def _channel(self, purpose: str) -> ControllerChannel:
        """A way to the active controller on which only requests of one kind wait for each other."""
        controller = self._controller
        requests_of_brokers = {
            56: controller.alter_partition,
            62: controller.broker_registration,
            63: controller.broker_heartbeat,
            67: controller.allocate_producer_ids,
            73: controller.assign_replicas_to_dirs,
        }
        client_id = f"broker-{self._node_id}-{purpose}"
        channel = ControllerChannel(self._quorum, requests_of_brokers, self._loop, client_id)
        self._channels.append(channel)
        return channel

    def _failed(self, error: Exception) -> None:
        """Something without which this process must not go on."""
        if not self.failure.done():
            known = isinstance(error, StorageFailedError)
            self.failure.set_exception(error if known else StartError(str(error)))
            self.failure.exception()

    def _metadata_log_failed(self, error: Exception) -> None:
        error = metadata_log_failed(str(self._settings.metadata_log_dir), error)
        if isinstance(error, StorageFailedError):
            self._readiness.needs_restart("storage", str(error))
        self._failed(error)

    def _memory_starved(self, reason: str | None) -> None:
        if reason is None:
            self._readiness.done("memory")
        else:
            self._readiness.wait_for("memory", reason)

    def _log_limits(self) -> None:
        descriptors, connections = self._descriptors, self._server.connections_max
        logger.info(
            "accepts up to %d connections: %d descriptors (ulimit -n), %d kept for storage, other "
            "brokers and admin endpoints",
            connections,
            descriptors.limit,
            descriptors.kept,
        )
        if descriptors.connections <= CONNECTIONS_MIN:
            logger.warning(
                "%d descriptors are too few for a broker: raise ulimit -n", descriptors.limit
            )

    async def start(self) -> None:
        self._log_limits()
        self._collector.install()
        ports = self._bind_listeners()
        advertised = self._settings.listeners.advertise(ports)
        self._server.start_accepting()  # only for other brokers, until clients can be served
        await self._quorum.start(self._quorum_endpoints(advertised))
        broker_epoch = await self._register(advertised)
        await self._load_logs()
        await self._storage.look()
        self._host_partitions(broker_epoch)
        await self._until_settled(float("inf"))
        self._context.serves_clients = True
        # Before it serves: a broker that waits for space makes some, by retention.
        self._tasks.append(asyncio.create_task(self._housekeeping()))
        self._tasks.append(asyncio.create_task(self._storage.run()))
        await self._unfence()
        self._lag.start()
        self._cleaner.start()
        self._tasks.append(asyncio.create_task(self._context.log_ends.run()))
        self._readiness.done("start")
        self._announce(ports)
        await self._front.start()
        self._front.attach(self._context)
        self._collector.set_aside()

    async def _unfence(self) -> None:
        """Wait until the controller lets this broker in; if that takes long, say why."""
        unfencing = asyncio.ensure_future(self._lifecycle.unfence())
        try:
            await asyncio.wait({unfencing}, timeout=SLOW_START_SECONDS)
            if not unfencing.done():
                await self._front.start()
            await unfencing
        finally:
            unfencing.cancel()

    def _quorum_endpoints(self, advertised: Sequence[Listener]) -> tuple[RaftEndpoint, ...]:
        """Where other brokers reach this one; `controller.quorum.voters` must agree."""
        settings = self._settings
        name = settings.listeners.inter_broker_name
        own = next(listener for listener in advertised if listener.name == name)
        said = settings.quorum_voters.get(settings.node_id)
        if said is not None and said.port != own.port:
            raise StartError(
                f"controller.quorum.voters says that node {settings.node_id} is at {said}, but "
                f"its inter-broker listener is {own}"
            )
        return (RaftEndpoint(own.name, own.host, own.port),)

    async def _register(self, advertised: Sequence[Listener]) -> int:
        """Wait for a controller and become known to it; say meanwhile what is missing."""
        registering = asyncio.ensure_future(self._lifecycle.register(advertised))
        try:
            while True:
                await asyncio.wait({registering}, timeout=SLOW_START_SECONDS)
                if registering.done():
                    break
                self._readiness.wait_for("quorum", self._quorum.waits_for)
                await self._front.start()
            broker_epoch = registering.result()
        except RegistrationError as error:
            raise StartError(str(error)) from error
        finally:
            registering.cancel()
        self._readiness.done("quorum")
        self._registered = True
        self._lifecycle.start()
        return broker_epoch

    def _host_partitions(self, broker_epoch: int) -> None:
        metadata, partitions = self._metadata, self._partitions
        partitions.await_registration(broker_epoch)
        everything = MetadataDelta.between(EMPTY_IMAGE, metadata.image)
        partitions.apply(everything, metadata.controller_epoch)
        metadata.subscribe(partitions.apply)
        metadata.subscribe(self._reconfigure)
        self._context.transactions.start(self._markers)
        metadata.subscribe(self._context.transactions.shards.metadata_changed)
        self._groups.coordinator.start()
        metadata.subscribe(self._groups.coordinator.metadata_changed)
        self._replication.start()
        partitions.start_timers()

    async def _until_settled(self, seconds: float) -> None:
        """Until this broker leads and follows what the metadata says."""
        give_up = self._loop.time() + seconds
        while not self._partitions.settled and self._loop.time() < give_up:
            await asyncio.sleep(SETTLED_CHECK_SECONDS)

    async def stop(self) -> None:
        self._readiness.wait_for("stop", "the broker is stopping")
        ended_by = self.failure.exception() if self.failure.done() else None
        in_order = ended_by is None
        if isinstance(ended_by, StorageFailedError):
            in_order = ended_by.in_order
        without_disk = ended_by is not None and not in_order
        if self._registered and in_order:
            await self._hand_over()
        self._server.stop_accepting()
        self._lag.stop()
        self._collector.remove()
        self._partitions.release_fetches()
        self._groups.coordinator.close()
        drain_seconds = DRAIN_WITHOUT_DISK_SECONDS if without_disk else DRAIN_SECONDS
        await self._server.drain(drain_seconds)
        await self._until_settled(drain_seconds)
        self._partitions.stop_commands()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._context.transactions.close()
        if self._context.verifier is not None:
            self._context.verifier.close()
        for calls in self._calls:
            calls.close()
        self._replication.close()
        await self._lifecycle.stop()
        self._seat.stop()
        self._quorum.stop()
        for channel in self._channels:
            channel.close()
        await asyncio.to_thread(self._cleaner.stop)
        await asyncio.to_thread(self._logs.close, self._lifecycle.broker_epoch)
        await self._front.stop()
        logger.info("stopped")

    async def _hand_over(self) -> None:
        """Others lead what this broker leads, before it goes; if there are any."""
        settings, node_id = self._settings, self._node_id
        others = [b.id for b in self._metadata.image.usable_brokers() if b.id != node_id]
        if others and settings.bool("controlled.shutdown.enable"):
            timeout_ms = settings.int("odradek.controlled.shutdown.timeout.ms")
            await self._lifecycle.shut_down(timeout_ms)
        await self._quorum.resign(settings.int("controller.quorum.election.timeout.ms"))

    def _reconfigure(self, delta: MetadataDelta, _: int) -> None:
        """What reads its settings only now and then is told that they changed."""
        if delta.broker_config_changed(self._node_id):
            self._cleaner.reconfigure()

    def _bind_listeners(self) -> dict[str, int]:
        ports = {}
        for listener in self._settings.listeners.brokers:
            try:
                _, ports[listener.name] = self._server.bind(listener)
            except OSError as error:
                raise StartError(f"listeners: cannot bind {listener}: {error.strerror}") from error
        return ports

    async def _load_logs(self) -> None:
        image = self._metadata.image

        def config_of(topic_partition: TopicPartition) -> LogConfig:
            return self._settings.log_config(image.topic_config(topic_partition.topic))

        def say(text: str) -> None:
            self._loop.call_soon_threadsafe(self._readiness.wait_for, "recovery", text)

        loading = asyncio.ensure_future(asyncio.to_thread(self._logs.load, say, config_of))
        try:
            await asyncio.wait({loading}, timeout=SLOW_START_SECONDS)
            if not loading.done():
                await self._front.start()
            await asyncio.shield(loading)
        finally:
            await asyncio.wait({loading})  # its threads cannot be stopped half-way
        self._readiness.done("recovery")

    async def _housekeeping(self) -> None:
        """Retention, flushes, checkpoints: decided on the loop, carried out in a thread."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            for job in self._logs.tick(self._clock.now_ms()):
                try:
                    await asyncio.to_thread(job)
                except LogDirError as error:
                    if not error.offline:  # else it was logged when it failed
                        logger.warning("%s", error)
            self._look_at_contact()

    def _look_at_contact(self) -> None:
        """A broker that no controller answers does not know who leads by now."""
        if self._lifecycle.cut_off:
            silent_s = self._lifecycle.unheard_ms / 1000
            reason = f"no controller has answered this broker for {silent_s:.0f} s"
            self._readiness.wait_for("isolated", reason)
        else:
            self._readiness.done("isolated")

    def _announce(self, ports: dict[str, int]) -> None:
        hosts = {
            listener.name: f"{listener.host or '0.0.0.0'}:{ports[listener.name]}"
            for listener in self._settings.listeners.brokers
        }
        line = {
            "event": "ready",
            "node_id": self._node_id,
            "cluster_id": self._context.cluster_id,
            "listeners": hosts,
            "admin": self._front.address,
            "startup_ms": round((time.monotonic() - self._started_at) * 1000),
        }
        print(json.dumps(line), flush=True)


def _check_cluster_id(settings: Settings, disk: Disk) -> None:
    """A new node must be told the id of the cluster that it belongs to, unless it is its own."""
    if settings.optional_str("odradek.cluster.id") is not None:
        return
    known = (disk.exists(f"{path}/{META_PROPERTIES}") for path in settings.log_dirs)
    if (settings.quorum_voters or settings.quorum_bootstrap_servers) and not any(known):
        raise StartError(
            "odradek.cluster.id must be set: this node is new, and controller.quorum.voters or "
            "controller.quorum.bootstrap.servers says that it is not alone"
        )


def _metadata_directory_id(settings: Settings, disk: Disk, cluster_id: str) -> UUID:
    """Of the directory with the metadata log, which need not be one of `log.dirs`."""
    path = str(settings.metadata_log_dir)
    disk.make_dir(path)
    return claim_identity(disk, path, cluster_id, settings.node_id).directory_id
