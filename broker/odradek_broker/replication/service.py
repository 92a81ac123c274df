"""Replication of this broker: a fetcher per leader, and requests to the controller.

Attached to the PartitionService, which names the partitions to follow and the proposed ISRs.
Addresses of leaders come from the metadata: the inter-broker listener of their
registration. A leader that is not registered (yet, or any more) is not fetched from; the
partitions wait until it registers.
"""

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from odradek_broker.controller_client.channel import ControllerCalls
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.partition.leader_events import Propose
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_broker.replication.alter_partition import AlterPartitionSender
from odradek_broker.replication.assign_dirs import DirectorySender
from odradek_broker.replication.fetcher import LeaderFetcher
from odradek_broker.replication.followed import FetcherContext
from odradek_broker.replication.leader_calls import LeaderConnection
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tasks import Threads
from odradek_protocol.ids import BrokerId

logger = logging.getLogger(__name__)

# A connection that nothing is fetched through stays this long: after an election the same
# partition often follows the same broker again.
IDLE_SECONDS = 5.0

Address = tuple[str, int]
Connect = Callable[[str, int], LeaderConnection]


class ReplicationService:
    """Invariant: a partition in `_followed` is in the fetcher of its leader, if there is one."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        threads: Threads,
        partitions: PartitionService,
        connect: Connect,
        channel: ControllerCalls,
    ) -> None:
        self._context = FetcherContext(settings, clock, threads, partitions)
        self._listener = settings.listeners.inter_broker_name
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._image: MetadataImage = EMPTY_IMAGE
        self._fetchers: dict[BrokerId, tuple[Address, LeaderFetcher]] = {}
        self._followed: dict[Partition, BrokerId] = {}  # and the leaders that they follow
        self._proposals = AlterPartitionSender(partitions, channel)
        self._directories = DirectorySender(partitions, channel)

    def start(self) -> None:
        self._context.partitions.attach(self)

    def close(self) -> None:
        for _, fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._proposals.close()
        self._directories.close()

    # --- calls of the PartitionService -------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        assert partition.following is not None
        self.unfollow(partition)
        leader = partition.following.leader
        self._followed[partition] = leader
        fetcher = self._fetcher(leader)
        if fetcher is not None:
            fetcher.add(partition)

    def unfollow(self, partition: Partition) -> None:
        leader = self._followed.pop(partition, None)
        if leader is None or leader not in self._fetchers:
            return
        _, fetcher = self._fetchers[leader]
        fetcher.remove(partition)
        if not len(fetcher):
            self._loop.call_later(IDLE_SECONDS, self._close_if_idle, leader, fetcher)

    def _close_if_idle(self, leader: BrokerId, fetcher: LeaderFetcher) -> None:
        found = self._fetchers.get(leader)
        if found is not None and found[1] is fetcher and not len(fetcher):
            del self._fetchers[leader]
            fetcher.close()

    def propose(self, partition: Partition, proposal: Propose) -> None:
        self._proposals.add(partition, proposal.proposal)

    def assign_directory(self, partition: Partition, directory_id: UUID) -> None:
        self._directories.add(partition, directory_id)

    def update_metadata(self, image: MetadataImage) -> None:
        """Leaders may have come, gone or moved."""
        self._image = image
        for leader, (address, outdated) in list(self._fetchers.items()):
            if self._address(leader) != address:
                del self._fetchers[leader]
                outdated.close()
        new = {
            leader
            for leader in set(self._followed.values())
            if leader not in self._fetchers and self._address(leader) is not None
        }
        if not new:
            return
        for partition, leader in self._followed.items():
            fetcher = self._fetcher(leader) if leader in new else None
            if fetcher is not None:
                fetcher.add(partition)

    # --- fetchers ------------------------------------------------------------------------------

    def _address(self, leader: BrokerId) -> Address | None:
        broker = self._image.brokers.get(leader)
        endpoint = broker.endpoints.get(self._listener) if broker is not None else None
        return (endpoint.host, endpoint.port) if endpoint is not None else None

    def _fetcher(self, leader: BrokerId) -> LeaderFetcher | None:
        found = self._fetchers.get(leader)
        if found is not None:
            return found[1]
        address = self._address(leader)
        if address is None:
            return None
        fetcher = LeaderFetcher(leader, self._connect(*address), self._context)
        self._fetchers[leader] = (address, fetcher)
        return fetcher
