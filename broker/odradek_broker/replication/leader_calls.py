"""The requests of a follower to its leader: Fetch in a session, and ListOffsets."""

from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from odradek_broker.partition.follower_state import FetchPosition
from odradek_broker.partition.leader_state import Peers
from odradek_broker.partition.partition import Partition
from odradek_broker.replication.session import Key, SessionRequest
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, Offset
from odradek_protocol.messages.fetch import FetchPartition, FetchRequest
from odradek_protocol.messages.fetch_response import encode_fetch_request
from odradek_protocol.messages.struct import Struct

T = TypeVar("T")

FETCH, FETCH_VERSION = 1, 17
LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 9
LATEST, EARLIEST = -1, -2


class LeaderConnection(Protocol):
    """`runtime.peer.Peer` is one."""

    def call_raw(
        self, api_key: int, version: int, body: Sequence[bytes], timeout_ms: float
    ) -> Awaitable[memoryview]: ...

    def call(
        self, api_key: int, version: int, request: Struct, timeout_ms: float
    ) -> Awaitable[Struct]: ...

    def close(self) -> None: ...


def encode_fetch(request: SessionRequest, peers: Peers, settings: Settings) -> bytes:
    return encode_fetch_request(
        FETCH_VERSION,
        FetchRequest(
            replica_id=peers.node_id,
            replica_epoch=peers.broker_epoch,
            max_wait_ms=settings.int("replica.fetch.wait.max.ms"),
            min_bytes=settings.int("replica.fetch.min.bytes"),
            max_bytes=settings.int("replica.fetch.response.max.bytes"),
            isolation_level=0,
            session_id=request.session_id,
            session_epoch=request.epoch,
            topics=_by_topic(request.partitions),
            forgotten_topics=_by_topic([(key, key[1]) for key in request.forgotten]),
        ),
    )


def fetch_partition(index: int, position: FetchPosition, max_bytes: int) -> FetchPartition:
    return FetchPartition(
        index,
        position.leader_epoch,
        position.fetch_offset,
        position.last_fetched_epoch,
        position.log_start_offset,
        max_bytes,
    )


def _by_topic(items: list[tuple[Key, T]]) -> list[tuple[str | None, bytes | None, list[T]]]:
    """Grouped by topic, as in requests."""
    topics: dict[bytes, list[T]] = {}
    for (topic_id, _), item in items:
        topics.setdefault(topic_id, []).append(item)
    return [(None, topic_id, found) for topic_id, found in topics.items()]


async def leader_offsets(
    connection: LeaderConnection,
    node_id: BrokerId,
    partition: Partition,
    position: FetchPosition,
    timeout_ms: float,
) -> tuple[Offset, Offset]:
    """Where the leader's log begins and ends. Raises PeerUnavailable, and KafkaError if refused."""
    topic, index = partition.topic_partition
    found = []
    for timestamp in (EARLIEST, LATEST):
        asked = Struct(
            partition_index=index, current_leader_epoch=position.leader_epoch, timestamp=timestamp
        )
        topics = [Struct(name=topic, partitions=[asked])]
        response = await connection.call(
            LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            Struct(replica_id=node_id, isolation_level=0, topics=topics),
            timeout_ms,
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        found.append(int(answer.offset))
    return found[0], found[1]
