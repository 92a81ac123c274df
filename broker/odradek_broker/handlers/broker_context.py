"""The services of this broker for its handlers; built once in `wiring.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from odradek_broker.handlers.metadata_cache import MetadataCache
from odradek_broker.log.cleaner_manager import CleanerManager
from odradek_broker.log.manager import LogManager
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.settings import Settings
from odradek_broker.security.listener import ListenerSecurity
from odradek_broker.security.quotas import ClientQuotas
from odradek_broker.telemetry.service import ClientTelemetry

if TYPE_CHECKING:
    from odradek_broker.controller.service import ControllerService
    from odradek_broker.controller_client.channel import ControllerChannel
    from odradek_broker.controller_client.producer_id_blocks import ProducerIdBlocks
    from odradek_broker.group.consumer.service import ConsumerGroupService
    from odradek_broker.group.lag import LogEnds
    from odradek_broker.group.service import GroupService
    from odradek_broker.group.share.service import ShareGroupService
    from odradek_broker.group.streams.service import StreamsGroupService
    from odradek_broker.handlers.api_table import ApiTable
    from odradek_broker.handlers.fetch_session import FetchSessions
    from odradek_broker.raft.service import QuorumService
    from odradek_broker.security.authorizer import Authorizer
    from odradek_broker.share.coordinator import ShareCoordinator
    from odradek_broker.share.service import ShareService
    from odradek_broker.txn.service import TransactionCoordinator
    from odradek_broker.txn.verifier import TransactionVerifier


@dataclass(slots=True)
class BrokerContext:
    node_id: int
    cluster_id: str
    settings: Settings
    clock: Clock
    rng: Random
    metrics: Metrics
    logs: LogManager
    cleaner: CleanerManager
    partitions: PartitionService
    metadata: MetadataPublisher
    quorum: "QuorumService"
    controller: "ControllerService"
    forwarder: "ControllerChannel"
    producer_ids: "ProducerIdBlocks"
    fetch_sessions: "FetchSessions"
    groups: "GroupService"
    consumer_groups: "ConsumerGroupService"
    log_ends: "LogEnds"
    share_groups: "ShareGroupService"
    streams_groups: "StreamsGroupService"
    shares: "ShareService"
    share_coordinator: "ShareCoordinator"
    transactions: "TransactionCoordinator"
    verifier: "TransactionVerifier"
    apis: "ApiTable"
    quotas: ClientQuotas = field(default_factory=ClientQuotas)
    telemetry: ClientTelemetry = field(default_factory=ClientTelemetry)
    # How each listener authenticates; one that is missing is PLAINTEXT.
    listener_security: Mapping[str, ListenerSecurity] = field(default_factory=dict)
    metadata_cache: MetadataCache = field(default_factory=MetadataCache)
    # Decides on the rights of clients; None if every client may do everything.
    authorizer: "Authorizer | None" = None
    # False until the partitions are hosted; until then only other brokers are served.
    serves_clients: bool = False
