"""The lag of groups: the ends of partitions that this broker does not host itself.

A coordinator knows the committed offsets of its groups, but the partitions may be on other
brokers. The end of a partition with a replica here is read from it. The ends of others are fetched
from their leaders (ListOffsets) every few seconds, and only if a group has offsets there.
`/metrics` reads the last known values: a scrape never waits for another broker.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from odradek_broker.group.records import Key
from odradek_broker.group.service import GroupService
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.peer import Peer, PeerUnavailable
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId, Offset
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 5
LATEST = -1
CONSUMER_REPLICA_ID = -1
ASK_AGAIN_SECONDS = 5.0
TIMEOUT_MS = 5_000.0
# Over all groups here; beyond this, the lag of some remote partitions is not reported. One round
# then sends some 400 KB.
REMOTE_PARTITIONS_MAX = 20_000


class LogEnds:
    """`end_of` returns the last known value; `run` updates the values."""

    def __init__(
        self,
        groups: GroupService,
        partitions: PartitionService,
        listener_name: str,
        make_peer: Callable[[str, int], Peer],
    ) -> None:
        self._groups = groups
        self._partitions = partitions
        self._listener_name = listener_name
        self._make_peer = make_peer
        self._remote: dict[Key, Offset] = {}
        self._peers: dict[tuple[str, int], Peer] = {}

    def end_of(self, key: Key) -> Offset | None:
        """The last known high watermark; None if unknown."""
        partition = self._partitions.by_name.get(key)
        if partition is not None:
            return partition.high_watermark
        return self._remote.get(key)

    async def fetch(self, keys: Iterable[Key]) -> dict[Key, Offset]:
        """The ends of these partitions, as their leaders have them now, as far as known."""
        image, hosted = self._partitions.image, self._partitions.by_name
        ends: dict[Key, Offset] = {}
        remote = []
        for key in keys:
            partition = hosted.get(key)
            if partition is not None and partition.leading is not None:
                ends[key] = partition.high_watermark
            else:
                remote.append(key)
        wanted = by_leader(image, remote)
        for answer in await asyncio.gather(
            *(self._ask(image, leader, asked) for leader, asked in wanted.items())
        ):
            ends.update(answer)
        return ends

    async def run(self) -> None:
        """Runs until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(ASK_AGAIN_SECONDS)
                await self._ask_leaders()
        finally:
            for peer in self._peers.values():
                peer.close()

    async def _ask_leaders(self) -> None:
        image = self._partitions.image
        wanted = by_leader(image, self._remote_keys())
        answers = await asyncio.gather(
            *(self._ask(image, leader, keys) for leader, keys in wanted.items())
        )
        self._remote = {key: end for answer in answers for key, end in answer.items()}

    def _remote_keys(self) -> Iterable[Key]:
        hosted = self._partitions.by_name
        seen: set[Key] = set()
        for shard in self._groups.shards():
            for group_id in shard.offsets.groups():
                for key in shard.offsets.of_group(group_id):
                    if key not in hosted and key not in seen:
                        if len(seen) == REMOTE_PARTITIONS_MAX:
                            return
                        seen.add(key)
                        yield key

    async def _ask(
        self, image: MetadataImage, leader: BrokerId, keys: list[Key]
    ) -> dict[Key, Offset]:
        broker = image.brokers.get(leader)
        endpoint = broker.endpoints.get(self._listener_name) if broker else None
        if endpoint is None:
            return {}
        address = endpoint.host, endpoint.port
        if address not in self._peers:
            self._peers[address] = self._make_peer(*address)
        try:
            answer = await self._peers[address].call(
                LIST_OFFSETS, LIST_OFFSETS_VERSION, request_for(image, keys), TIMEOUT_MS
            )
        except PeerUnavailable as error:
            logger.debug("lag: no response from broker %d: %s", leader, error)
            # Keep the old values: a leader that restarts is back soon.
            return {key: self._remote[key] for key in keys if key in self._remote}
        return ends_in(answer)


def by_leader(image: MetadataImage, keys: Iterable[Key]) -> dict[BrokerId, list[Key]]:
    wanted: dict[BrokerId, list[Key]] = {}
    for name, number in keys:
        topic = image.topics.get(name)
        partition = topic.partitions.get(number) if topic else None
        if partition is not None and partition.leader >= 0:
            wanted.setdefault(partition.leader, []).append((name, number))
    return wanted


def request_for(image: MetadataImage, keys: list[Key]) -> Struct:
    topics: dict[str, list[int]] = {}
    for name, number in keys:
        topics.setdefault(name, []).append(number)
    return Struct(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=0,
        topics=[
            Struct(
                name=name,
                partitions=[
                    Struct(
                        partition_index=number,
                        current_leader_epoch=image.topics[name].partitions[number].leader_epoch,
                        timestamp=LATEST,
                    )
                    for number in numbers
                ],
            )
            for name, numbers in topics.items()
        ],
    )


def ends_in(answer: Struct) -> dict[Key, Offset]:
    return {
        (topic.name, partition.partition_index): partition.offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.none
    }


EndOf = Callable[[Key], Offset | None]
