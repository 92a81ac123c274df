"""Brokers without a network: PartitionServices on simulated disks, with metadata from the test."""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import UUID

from broker_tests.manual_clock import ManualClock
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.housekeeping import LogSettings
from odradek_broker.log.manager import LogManager
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE
from odradek_broker.metadata.records import (
    Endpoint,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.disk import Disk
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tasks import Threads
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId

TOPIC_ID = UUID(int=7)
ONE, TWO, THREE = (BrokerId(i) for i in (1, 2, 3))


class ManualScheduler:
    """Runs due callbacks when the test calls `run`; time is that of the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._soon: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._later: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._numbers = count()

    def call_soon(self, callback: Callable[..., Any], *args: object) -> "Cancelled":
        self._soon.append((callback, args))
        return Cancelled()

    def call_later(self, delay: float, callback: Callable[..., Any], *args: object) -> "Cancelled":
        cancelled = Cancelled()
        at_ms = self.clock.monotonic_ms() + delay * 1000
        run = lambda: None if cancelled.is_set else callback(*args)  # noqa: E731
        heapq.heappush(self._later, (at_ms, next(self._numbers), run, ()))
        return cancelled

    def run(self) -> None:
        """Runs all due callbacks, and those that they schedule."""
        while True:
            now_ms = self.clock.monotonic_ms()
            if self._soon:
                callback, args = self._soon.popleft()
            elif self._later and self._later[0][0] <= now_ms:
                _, _, callback, args = heapq.heappop(self._later)
            else:
                return
            callback(*args)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.run()


class Cancelled:
    def __init__(self) -> None:
        self.is_set = False

    def cancel(self) -> None:
        self.is_set = True


class NoThreads:
    """Jobs run when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.jobs.append((job, done))

    def finish(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job, done in jobs:
            try:
                job()
            except Exception as error:
                done(error)
            else:
                done(None)


class Metadata:
    """The metadata log: takes records and sends deltas to all brokers."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.controller_epoch = 1
        self.listeners: list[PartitionService] = []
        self._held: dict[PartitionService, list[tuple[MetadataDelta, int]]] = {}

    def hold_back(self, service: PartitionService) -> None:
        """It gets no answer until it is released."""
        self._held.setdefault(service, [])

    def release(self, service: PartitionService) -> None:
        for delta, epoch in self._held.pop(service, []):
            service.apply(delta, epoch)

    def commit(self, *records: MetadataRecord) -> MetadataDelta:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        delta.finish(self.image.offset + len(records))
        delta.after.validate()
        self.image = delta.after
        for service in self.listeners:
            if service in self._held:
                self._held[service].append((delta, self.controller_epoch))
            else:
                service.apply(delta, self.controller_epoch)
        return delta


def register(
    broker_id: BrokerId, epoch: int | None = None, *, fenced: bool = False, rack: str | None = None
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id),
        broker_epoch=100 + broker_id if epoch is None else epoch,
        end_points=(Endpoint("PLAINTEXT", f"broker-{broker_id}", 9092, 0),),
        features=(),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=False,
        log_dirs=(UUID(int=1000 + broker_id),),
    )


def topic(
    name: str = "orders",
    topic_id: UUID = TOPIC_ID,
    *,
    replicas: tuple[BrokerId, ...] = (ONE, TWO, THREE),
    partitions: int = 1,
    isr: tuple[BrokerId, ...] | None = None,
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = [TopicRecord(name, topic_id)]
    for index in range(partitions):
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=isr or replicas,
                removing_replicas=(),
                adding_replicas=(),
                leader=(isr or replicas)[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(UUID(int=1000 + replica) for replica in replicas),
            )
        )
    return records


class Node:
    """One broker's partitions."""

    def __init__(
        self,
        broker_id: BrokerId,
        metadata: Metadata,
        clock: ManualClock,
        scheduler: ManualScheduler,
        settings: dict[str, str] | None = None,
        disk: Disk | None = None,
        threads: Threads | None = None,
    ) -> None:
        self.id = broker_id
        self.metadata = metadata
        own = {"node.id": str(broker_id), "log.dirs": "/data"}
        self.settings = Settings({**own, **(settings or {})})
        self.disk = disk or SimDisk()
        self.logs = LogManager(
            self.settings.list("log.dirs"),
            self.disk,
            clock,
            LogSettings(cluster_id="cluster", node_id=broker_id, recovery_threads_per_dir=1),
        )
        self.threads = NoThreads()
        self.service = PartitionService(
            broker_id, self.settings, self.logs, clock, scheduler, threads or self.threads
        )
        metadata.listeners.append(self.service)

    def partition(self, index: int = 0, name: str = "orders") -> Partition:
        partition = self.service.by_name[name, index]
        partition.validate()
        return partition


class Waiter:
    """A produce request that waits."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[int, ErrorCode]] = []

    def acknowledged(self, index: int, error: ErrorCode) -> None:
        self.outcomes.append((index, error))
