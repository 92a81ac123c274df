"""A controller in memory, and helpers that build requests."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from random import Random
from uuid import UUID, uuid4

from odradek_broker.controller.service import ControllerService
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.features import SUPPORTED_FEATURES
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.metadata.publisher import MetadataPublisher
from odradek_broker.metadata.records import (
    Endpoint,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import KafkaError
from odradek_protocol.ids import BrokerId
from odradek_protocol.messages.struct import Struct

ME = BrokerId(1)
DIRECTORY = UUID(int=777)  # the first 100 are reserved


class MemoryLog:
    """A MetadataLog that commits at once, or when the test says so, and publishes then."""

    def __init__(self, records: Sequence[MetadataRecord] = ()) -> None:
        self.records = list(records)
        self.epoch = 0
        self.hold: Awaitable[None] | None = None  # awaited before an append is committed
        self.failure: KafkaError | None = None  # of the next appends
        self.batches: list[list[MetadataRecord]] = []
        self.publisher: MetadataPublisher

    @property
    def next_offset(self) -> int:
        return len(self.records)

    def elect(self, controller: ControllerService, publisher: MetadataPublisher) -> None:
        """Make a controller that has just started active."""
        self.publisher = publisher
        self.epoch += 1
        if self.records:
            publisher.replay(self.records, len(self.records) - 1, self.epoch)
        controller.become_active(self.epoch, publisher.image)

    def batch_of(self, records: Sequence[MetadataRecord]) -> bytes:
        return b""

    def append(
        self,
        records: Sequence[MetadataRecord],
        data: bytes | None = None,
        delta: MetadataDelta | None = None,
    ) -> "asyncio.Future[None]":
        if self.failure is not None:
            raise self.failure
        self.records += records
        self.batches.append(list(records))
        return asyncio.ensure_future(self._commit(records, self.next_offset - 1))

    async def _commit(self, records: Sequence[MetadataRecord], last_offset: int) -> None:
        if self.hold is not None:
            await self.hold
        self.publisher.replay(records, last_offset, self.epoch)


async def started(
    settings: Mapping[str, str] | None = None, log: MemoryLog | None = None
) -> ControllerService:
    """An active controller with one live broker, number 1."""
    controller = elected(Settings(settings), log or MemoryLog())
    await register(controller)
    return controller


async def register(
    controller: ControllerService,
    broker: BrokerId = ME,
    *,
    directory: UUID = DIRECTORY,
    previous_epoch: int = -1,
) -> int:
    """Registers a new incarnation of the broker and unfences it; gives its broker epoch.

    `previous_epoch`: the broker epoch that its last clean shutdown noted; -1 if it was not clean.
    """
    registration = Struct(
        broker_id=broker,
        cluster_id=controller.cluster_id,
        incarnation_id=uuid4(),
        listeners=[Struct(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)],
        features=[
            Struct(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in SUPPORTED_FEATURES
        ],
        rack=None,
        log_dirs=[directory],
        previous_broker_epoch=previous_epoch,
    )
    epoch: int = (await controller.broker_registration(registration)).broker_epoch
    answer = await controller.broker_heartbeat(heartbeat(epoch, broker))
    assert not answer.is_fenced
    return epoch


def heartbeat(
    broker_epoch: int,
    broker: BrokerId = ME,
    *,
    want_fence: bool = False,
    want_shut_down: bool = False,
) -> Struct:
    """A heartbeat of a broker that has all metadata."""
    return Struct(
        broker_id=broker,
        broker_epoch=broker_epoch,
        current_metadata_offset=1_000_000,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
        offline_log_dirs=[],
    )


def elected(settings: Settings, log: MemoryLog) -> ControllerService:
    publisher = MetadataPublisher(BrokerId(1), settings)
    controller = ControllerService(settings, Random(1), log, publisher, "cluster")
    log.elect(controller, publisher)
    return controller


def cluster(racks: Mapping[int, str | None], fenced: Sequence[int] = ()) -> MetadataImage:
    """An image with these brokers and nothing else."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for broker, rack in racks.items():
        delta.replay(
            RegisterBrokerRecord(
                broker_id=BrokerId(broker),
                incarnation_id=UUID(int=broker + 1),
                broker_epoch=broker,
                end_points=(Endpoint("PLAINTEXT", f"broker-{broker}", 9092, 0),),
                features=(),
                rack=rack,
                fenced=broker in fenced,
                in_controlled_shutdown=False,
                log_dirs=(UUID(int=100 + broker),),
            )
        )
    return delta.finish(len(racks)).after


def partition_record(
    topic_id: UUID,
    index: int,
    replicas: Sequence[int],
    isr: Sequence[int] | None = None,
    leader: int | None = None,
) -> PartitionRecord:
    """As of brokers from `cluster`, each with its one directory."""
    isr = replicas if isr is None else isr
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=tuple(map(BrokerId, replicas)),
        isr=tuple(map(BrokerId, isr)),
        removing_replicas=(),
        adding_replicas=(),
        leader=BrokerId(isr[0] if leader is None else leader),
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(UUID(int=100 + replica) for replica in replicas),
    )


def after(image: MetadataImage, records: Sequence[MetadataRecord]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    result = delta.finish(image.offset + len(records)).after
    result.validate()
    return result


def new_topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> Struct:
    if assignments is not None:
        partitions = replication_factor = -1
    return Struct(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            Struct(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (assignments or {}).items()
        ],
        configs=[Struct(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(*topics: Struct, validate_only: bool = False) -> Struct:
    return Struct(topics=list(topics), validate_only=validate_only)


def delete(*names: str) -> Struct:
    return Struct(topics=[], topic_names=list(names))
