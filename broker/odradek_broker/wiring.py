"""Builds the services of one broker: the only module that knows all classes.

Each service is built from those before it and gets them through its constructor. Where two need
each other, the earlier one gets a function, which it calls only once the broker has started.
`broker.py` starts and stops the services.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from odradek_broker.admin.state import Readiness
from odradek_broker.admin_front import StartError
from odradek_broker.controller.seat import ControllerSeat
from odradek_broker.controller.service import ControllerService
from odradek_broker.controller_client.channel import ControllerChannel
from odradek_broker.controller_client.lifecycle import (
    BrokerLifecycle,
    Incarnation,
    LogDirectories,
)
from odradek_broker.controller_client.producer_id_blocks import ProducerIdBlocks
from odradek_broker.coordinator.broker_calls import BrokerCalls
from odradek_broker.coordinator.internal_topics import OFFSETS_TOPIC
from odradek_broker.coordinator.service import CoordinatorService, CoordinatorTopic
from odradek_broker.group.config import GroupConfig
from odradek_broker.group.consumer.service import ConsumerGroupService
from odradek_broker.group.kinds import new_shard
from odradek_broker.group.lag import LogEnds
from odradek_broker.group.metrics import GroupMetrics
from odradek_broker.group.service import GroupService
from odradek_broker.group.share.service import ShareGroupService
from odradek_broker.group.streams.service import StreamsGroupService
from odradek_broker.handlers import (
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    write_txn_markers,
)
from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.handlers.fetch_session import FetchSessions
from odradek_broker.handlers.registry import build_apis
from odradek_broker.log.cleaner_manager import CleanerConfig, CleanerManager
from odradek_broker.log.dir_identity import META_PROPERTIES, claim_identity
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.manager import LogManager
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.network.server import Server
from odradek_broker.partition.service import PartitionService
from odradek_broker.raft.log_files import open_metadata_log
from odradek_broker.raft.opening import open_quorum
from odradek_broker.raft.service import QuorumService
from odradek_broker.raft.values import NodeIdentity, ReplicaKey
from odradek_broker.replication.service import ReplicationService
from odradek_broker.runtime.clock import Clock, SystemClock
from odradek_broker.runtime.descriptors import current_limit, share
from odradek_broker.runtime.disk import Disk, RealDisk
from odradek_broker.runtime.event_loop import EndOfPass, PollerLoop
from odradek_broker.runtime.loop_lag import LoopLag
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.peer import Peer
from odradek_broker.runtime.ports import Ports
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tasks import LoopThreads
from odradek_broker.security.authorizer import Authorizer
from odradek_broker.security.first_users import first_users, with_own_users
from odradek_broker.security.quotas import ClientQuotas
from odradek_broker.security.rates import Windows
from odradek_broker.security.service import BrokerSecurity
from odradek_broker.share.coordinator import ShareCoordinator
from odradek_broker.share.persister import ANSWERS, GroupStates, SharePersister
from odradek_broker.share.service import ShareService
from odradek_broker.storage import (
    StorageFailedError,
    StorageServices,
    StorageWatch,
    metadata_log_failed,
)
from odradek_broker.txn import verifier
from odradek_broker.txn.markers import MarkerSender
from odradek_broker.txn.service import TransactionCoordinator
from odradek_broker.txn.verifier import TransactionVerifier
from odradek_protocol.ids import BrokerId, LeaderEpoch

if TYPE_CHECKING:
    from odradek_broker.testing.mode import TestingMode


class Services:
    """All services of one broker, built in the order of their dependencies."""

    def __init__(
        self,
        settings: Settings,
        loop: PollerLoop,
        readiness: Readiness,
        on_failure: Callable[[Exception], None],
        testing: "TestingMode | None" = None,
    ) -> None:
        self._settings = settings
        self._testing = testing
        self._readiness = readiness
        self._on_failure = on_failure
        self.node_id = BrokerId(settings.node_id)
        self.security = BrokerSecurity(settings, lambda: self.metadata.image)
        disk = testing.disk if testing else RealDisk()
        self._ports = Ports(
            loop, SystemClock(), disk, Random(), LoopThreads(loop), self.security.controllers
        )
        self.clock = self._ports.clock
        # Of logs, groups and transactions, whose time a test can advance.
        self.records_clock: Clock = testing.clock if testing else self.clock
        self.metrics = Metrics()

        # The storage, and the metadata of the cluster.
        self.logs = self._build_logs()
        self.cleaner = self._build_cleaner()
        self.metadata = MetadataPublisher(self.node_id, settings)

        # The metadata quorum, the controller, and this broker's registration with it.
        self.quorum = self._build_quorum()
        self.controller = self._build_controller()
        self.seat = ControllerSeat(self.controller, self.quorum, self.metadata, self.clock, loop)
        self.channels: list[ControllerChannel] = []
        self.lifecycle = self._build_lifecycle()

        # The partitions, and the coordinators that replay their records.
        self.partitions = self._build_partitions(EndOfPass(loop))
        self.replication = self._build_replication()
        self.groups = self._build_groups()
        self.producer_ids = self._build_producer_ids()
        self.transactions = TransactionCoordinator(
            settings, self.partitions, self.records_clock, loop, self.producer_ids.next
        )
        # Markers and verifications have connections of their own: neither waits for the other.
        self.verification_calls = self._broker_calls("txn-verifier")
        self.verifier = TransactionVerifier(self.verification_calls, self._image, settings)
        self.marker_calls = self._broker_calls("txn-markers")
        self.marker_sender = MarkerSender(self.marker_calls, self._image)

        # Share groups: the state of their partitions, and the partitions themselves.
        self.share_coordinator = ShareCoordinator(
            settings, self.partitions, self.records_clock, loop
        )
        self.share_calls = self._build_share_calls()
        self.share_persister = SharePersister(self.share_calls, self._image)
        self.shares = ShareService(
            settings, self.partitions, self.share_persister, self.records_clock
        )
        self.log_ends = self._build_log_ends()

        # The requests of clients and brokers.
        self.quotas = self._build_quotas()
        self.context = self._build_context()
        self.descriptors = share(current_limit())
        self.server = Server(
            self.context, loop, loop.poller, self.descriptors, on_starved=self._memory_starved
        )

        # Services that monitor the others.
        self.storage = self._build_storage_watch()
        session_timeout_ms = settings.int("broker.session.timeout.ms")
        self.lag = LoopLag(loop, self.clock, self.metrics, session_timeout_ms)

    # --- the steps -----------------------------------------------------------------------

    def _build_logs(self) -> LogManager:
        settings, disk = self._settings, self._ports.disk
        _check_cluster_id(settings, disk)
        directories = [str(path) for path in settings.log_dirs]
        return LogManager(directories, disk, self.records_clock, LogSettings.of(settings))

    def _build_cleaner(self) -> CleanerManager:
        return CleanerManager(
            self.logs.logs,
            lambda: CleanerConfig.of(self._settings),
            self.records_clock,
            self._ports.loop.call_soon_threadsafe,
        )

    def _build_quorum(self) -> QuorumService:
        settings, ports, cluster_id = self._settings, self._ports, self.logs.cluster_id
        path = settings.metadata_log_dir
        try:
            metadata_log = open_metadata_log(path, ports.disk, settings, ports.clock.now_ms())
        except OSError as error:
            raise metadata_log_failed(str(path), error) from error
        self._is_new = metadata_log.log.log_end_offset == 0
        return open_quorum(
            settings,
            metadata_log,
            self.metadata,
            NodeIdentity(
                ReplicaKey(self.node_id, _metadata_directory_id(settings, ports.disk, cluster_id)),
                cluster_id,
                settings.listeners.quorum_name,
            ),
            ports,
            self._metadata_log_failed,
        )

    def _build_controller(self) -> ControllerService:
        controller = ControllerService(
            self._settings,
            self._ports.rng,
            self.quorum,
            self.metadata,
            self.logs.cluster_id,
            self.clock,
            self._ports.loop,
        )
        file = self._settings.str("odradek.add.scram.file")
        users = first_users(file, is_new=self._is_new)
        if self._is_new:
            users = with_own_users(users, self.security.own_users)
        controller.first_users = users
        return controller

    def _build_lifecycle(self) -> BrokerLifecycle:
        logs = self.logs
        return BrokerLifecycle(
            Incarnation(self.node_id, logs.cluster_id, uuid4(), logs.previous_broker_epoch),
            self._settings,
            self._channel("lifecycle"),
            self.metadata,
            LogDirectories(
                lambda: logs.directory_ids, lambda: [d.directory_id for d in logs.offline_dirs]
            ),
            applied_offset=lambda: self.quorum.applied_offset,
            on_failure=self._on_failure,
        )

    def _build_partitions(self, end_of_pass: EndOfPass) -> PartitionService:
        return PartitionService(
            self.node_id,
            self._settings,
            self.logs,
            self.clock,
            end_of_pass,
            self._ports.threads,
            cut_off=lambda: self.lifecycle.cut_off,
        )

    def _build_replication(self) -> ReplicationService:
        return ReplicationService(
            self._settings,
            self.clock,
            self._ports.threads,
            self.partitions,
            partial(self._peer, f"broker-{self.node_id}-fetcher"),
            self._channel("replication"),
        )

    def _build_groups(self) -> GroupService:
        settings, metrics = self._settings, GroupMetrics()
        coordinator = CoordinatorService(
            CoordinatorTopic(
                OFFSETS_TOPIC,
                default_partitions=settings.int("offsets.topic.num.partitions"),
                write_timeout_ms=settings.int("offsets.commit.timeout.ms"),
                codec=settings.int("offsets.topic.compression.codec"),
            ),
            lambda _: new_shard(lambda: GroupConfig.of(settings), self._ports.rng, metrics),
            self.partitions,
            self.records_clock,
            self._ports.loop,
        )
        return GroupService(coordinator, settings, metrics)

    def _build_producer_ids(self) -> ProducerIdBlocks:
        channel = self._channel("producer-ids")
        return ProducerIdBlocks(self.node_id, lambda: self.lifecycle.broker_epoch, channel)

    def _build_context(self) -> BrokerContext:
        settings, metrics = self._settings, self.metrics
        slots = settings.int("max.incremental.fetch.session.cache.slots")
        apis = build_apis(metrics)
        if self._testing is not None:
            self._testing.faults.wrap(apis)
        return BrokerContext(
            node_id=self.node_id,
            cluster_id=self.logs.cluster_id,
            settings=settings,
            clock=self.clock,
            rng=self._ports.rng,
            metrics=metrics,
            logs=self.logs,
            cleaner=self.cleaner,
            partitions=self.partitions,
            metadata=self.metadata,
            quorum=self.quorum,
            controller=self.controller,
            forwarder=self._channel("forwarder"),
            producer_ids=self.producer_ids,
            fetch_sessions=FetchSessions(slots, self._ports.rng),
            transactions=self.transactions,
            verifier=self.verifier,
            groups=self.groups,
            consumer_groups=ConsumerGroupService(self.groups.coordinator, settings),
            log_ends=self.log_ends,
            share_groups=ShareGroupService(
                self.groups.coordinator, GroupStates(self.share_persister), self.log_ends.fetch
            ),
            streams_groups=StreamsGroupService(self.groups.coordinator),
            shares=self.shares,
            share_coordinator=self.share_coordinator,
            apis=apis,
            listener_security=self.security.listeners,
            authorizer=self._authorizer(),
            quotas=self.quotas,
        )

    def _build_quotas(self) -> ClientQuotas:
        settings = self._settings
        quotas = ClientQuotas(
            Windows.of(settings.int("quota.window.num"), settings.int("quota.window.size.seconds")),
            Windows.of(
                settings.int("controller.quota.window.num"),
                settings.int("controller.quota.window.size.seconds"),
            ),
        )
        self.metadata.subscribe(self._apply_quotas)
        return quotas

    def _build_log_ends(self) -> LogEnds:
        listener = self._settings.listeners.inter_broker_name
        return LogEnds(self.groups, self.partitions, listener, partial(self._peer, "group-lag"))

    def _build_storage_watch(self) -> StorageWatch:
        return StorageWatch(
            self._settings,
            self._ports,
            StorageServices(self.logs, self.metadata, self.partitions, self.lifecycle, self.quorum),
            self._readiness,
            on_end=self._on_failure,
        )

    def _authorizer(self) -> Authorizer | None:
        settings = self._settings
        if not settings.str("authorizer.class.name"):
            return None
        authorizer = Authorizer(
            settings.super_users, allow_if_no_acl_found=settings.allow_if_no_acl_found
        )
        authorizer.load(self.metadata.image)
        self.metadata.subscribe(lambda delta, _: authorizer.apply(delta))
        return authorizer

    # --- connections to other brokers ----------------------------------------------------

    def _channel(self, purpose: str) -> ControllerChannel:
        """A connection to the active controller; requests wait only for those of one purpose."""
        controller = self.controller
        local_requests = {
            alter_partition.API_KEY: controller.alter_partition,
            broker_registration.API_KEY: controller.broker_registration,
            broker_heartbeat.API_KEY: controller.broker_heartbeat,
            allocate_producer_ids.API_KEY: controller.allocate_producer_ids,
            assign_replicas_to_dirs.API_KEY: controller.assign_replicas_to_dirs,
        }
        client_id = f"broker-{self.node_id}-{purpose}"
        channel = ControllerChannel(
            self.quorum, local_requests, self._ports.loop, client_id, self.security.controllers
        )
        self.channels.append(channel)
        return channel

    def _broker_calls(self, purpose: str) -> BrokerCalls:
        """Requests of the transaction coordinator to every broker, including this one."""
        markers = write_txn_markers.MarkerWriter(self.partitions, self.groups, self.clock)
        return BrokerCalls(
            self.node_id,
            self._settings.listeners.inter_broker_name,
            self._image,
            {
                add_partitions_to_txn.API_KEY: partial(
                    add_partitions_to_txn.batched,
                    self.transactions,
                    self.metadata,
                    version=verifier.VERSION,
                ),
                write_txn_markers.API_KEY: markers.write,
            },
            partial(self._peer, f"broker-{self.node_id}-{purpose}"),
        )

    def _build_share_calls(self) -> BrokerCalls:
        """Requests to share coordinators, including the one of this broker."""
        return BrokerCalls(
            self.node_id,
            self._settings.listeners.inter_broker_name,
            self._image,
            {key: partial(answer, self.share_coordinator) for key, answer in ANSWERS.items()},
            partial(self._peer, f"broker-{self.node_id}-share-state"),
        )

    def _peer(self, client_id: str, host: str, port: int) -> Peer:
        loop = self._ports.loop
        return Peer(host, port, loop, client_id=client_id, security=self.security.peers)

    def _image(self) -> MetadataImage:
        return self.partitions.image

    # --- callbacks -----------------------------------------------------------------------

    def _metadata_log_failed(self, error: Exception) -> None:
        error = metadata_log_failed(str(self._settings.metadata_log_dir), error)
        if isinstance(error, StorageFailedError):
            self._readiness.needs_restart("storage", str(error))
        self._on_failure(error)

    def _apply_quotas(self, delta: MetadataDelta, _: LeaderEpoch) -> None:
        if delta.after.client_quotas is not delta.before.client_quotas:
            self.quotas.apply(delta.after.client_quotas)
            self.server.limits.apply(delta.after.client_quotas)

    def _memory_starved(self, reason: str | None) -> None:
        if reason is None:
            self._readiness.done("memory")
        else:
            self._readiness.wait_for("memory", reason)


def _check_cluster_id(settings: Settings, disk: Disk) -> None:
    """A new node needs the id of the cluster that it joins, unless it forms one alone."""
    if settings.optional_str("odradek.cluster.id") is not None:
        return
    known = (disk.exists(f"{path}/{META_PROPERTIES}") for path in settings.log_dirs)
    if (settings.quorum_voters or settings.quorum_bootstrap_servers) and not any(known):
        raise StartError(
            "odradek.cluster.id must be set: this node is new, and controller.quorum.voters or "
            "controller.quorum.bootstrap.servers says that it joins other nodes"
        )


def _metadata_directory_id(settings: Settings, disk: Disk, cluster_id: str) -> UUID:
    """The id of the directory of the metadata log, which need not be one of `log.dirs`."""
    path = str(settings.metadata_log_dir)
    disk.make_dir(path)
    return claim_identity(disk, path, cluster_id, settings.node_id).directory_id
