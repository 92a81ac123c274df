"""What a handler gets besides the request: the broker's services, and the request's envelope."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from odradek_broker.log.cleaner_manager import CleanerManager
from odradek_broker.log.manager import LogManager
from odradek_broker.log.types import FileRange
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.metrics import Metrics
from odradek_broker.runtime.settings import Settings

if TYPE_CHECKING:
    from odradek_broker.controller.producer_id_blocks import ProducerIdBlocks
    from odradek_broker.controller.service import ControllerService
    from odradek_broker.group.consumer.service import ConsumerGroupService
    from odradek_broker.group.lag import LogEnds
    from odradek_broker.group.service import GroupService
    from odradek_broker.handlers.fetch_session import FetchSessions
    from odradek_broker.raft.channel import ControllerChannel
    from odradek_broker.raft.service import QuorumService
    from odradek_broker.txn.service import TransactionCoordinator
    from odradek_broker.txn.verifier import TransactionVerifier

# A response without its 4-byte size, in pieces: bytes are sent, ranges go by sendfile.
Chunks = list[bytes | FileRange]


@dataclass(slots=True)
class BrokerContext:
    """The services of this broker; built once in main.py."""

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
    transactions: "TransactionCoordinator"
    verifier: "TransactionVerifier | None" = None  # set by main.py: it calls handlers
    serves_clients: bool = False  # from when the partitions are hosted; before, only brokers


class RequestContext(ABC):
    """One request under way: who asks, in which version, and how to answer."""

    __slots__ = (
        "api_key",
        "api_version",
        "broker",
        "client_host",
        "client_id",
        "correlation_id",
        "listener",
        "on_disconnect",
    )

    def __init__(
        self,
        broker: BrokerContext,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        listener: str,
        client_host: str,
    ) -> None:
        self.broker = broker
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.listener = listener
        self.client_host = client_host
        # Set by a request that waits, so that it stops waiting when nobody is left to hear it.
        self.on_disconnect: Callable[[], None] | None = None

    @property
    def is_forwarded(self) -> bool:
        """It came in an envelope, from the broker that the client has asked."""
        return False

    @abstractmethod
    def respond(self, chunks: Chunks, size: int) -> None:
        """Answers; called exactly once, at once or later, from the event loop.

        `size` is the length of all chunks. No chunks: the client wants no answer (acks=0).
        The connection keeps answers in the order of the requests.
        """

    @abstractmethod
    def disconnect(self, reason: str) -> None:
        """Closes the connection: the only way to tell a client that wants no answer."""
