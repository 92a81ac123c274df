"""Writes the markers that end a transaction into all its partitions.

The outcome is decided and committed before, so this never gives up: requests to a leader that is
unavailable or has too few in-sync replicas are retried until they succeed, or until this broker no
longer coordinates the transaction. The next coordinator then continues.

    done     NONE; INVALID_PRODUCER_EPOCH (a later transaction wrote there already, so this one
             has ended there); the topic was deleted
    fenced   TRANSACTION_COORDINATOR_FENCED: a newer coordinator writes the markers
    retry    everything else
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek_broker.coordinator.broker_calls import BrokerCalls
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.txn.channels import Batches
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId, LeaderEpoch, ProducerId, TopicPartition
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

WRITE_TXN_MARKERS, VERSION = 27, 2
# Markers queue behind a leader that does not respond; after this time another may lead.
TIMEOUT_MS = 5_000.0
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.02, 1.0

Results = dict[TopicPartition, ErrorCode]


class TxnMarker(NamedTuple):
    producer_id: ProducerId
    producer_epoch: int
    commit: bool
    coordinator_epoch: LeaderEpoch
    transaction_version: int


class FencedError(Exception):
    """Another broker coordinates this transaction."""


class _Piece(NamedTuple):
    marker: TxnMarker
    partitions: list[TopicPartition]
    future: "asyncio.Future[Results]"


class MarkerSender:
    def __init__(self, calls: BrokerCalls, image: Callable[[], MetadataImage]) -> None:
        self._calls = calls
        self._image = image
        self._batches: Batches[_Piece] = Batches(self._request)
        self.retries = 0

    async def write(
        self,
        marker: TxnMarker,
        partitions: Iterable[TopicPartition],
        still_ours: Callable[[], bool],
    ) -> None:
        """Returns when all are written; FencedError if another broker is the coordinator now."""
        missing = set(partitions)
        pause = RETRY_SECONDS
        while True:
            results = await self._round(marker, missing)
            missing = {partition for partition, code in results.items() if not _done(code)}
            if ErrorCode.transaction_coordinator_fenced in results.values() or not still_ours():
                raise FencedError
            if not missing:
                return
            self.retries += 1
            if self.retries % 100 == 1:
                code = next(code for code in results.values() if not _done(code))
                logger.info(
                    "retrying the markers of producer %d: %s", marker.producer_id, code.name
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)

    async def _round(self, marker: TxnMarker, partitions: set[TopicPartition]) -> Results:
        results: Results = {}
        leaders: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
        topics = self._image().topics
        for partition in sorted(partitions):
            topic = topics.get(partition.topic)
            registration = topic.partitions.get(partition.partition) if topic else None
            if registration is None:
                results[partition] = ErrorCode.none  # the topic was deleted
            elif registration.leader < 0:
                results[partition] = ErrorCode.leader_not_available
            else:
                leaders[registration.leader].append(partition)
        loop = asyncio.get_running_loop()
        futures = []
        for leader, there in leaders.items():
            future: asyncio.Future[Results] = loop.create_future()
            self._batches.put(leader, _Piece(marker, there, future))
            futures.append(future)
        for future in futures:
            results.update(await future)
        return results

    async def _request(self, broker_id: BrokerId, pieces: list[_Piece]) -> None:
        """Sends one request for all of them; every item gets its result, or the failure."""
        answers: list[Results] = []
        try:
            request = Struct(markers=[_encode(piece) for piece in pieces])
            response = await self._calls.call(
                broker_id, WRITE_TXN_MARKERS, VERSION, request, TIMEOUT_MS
            )
            answers = [_decode(marker) for marker in response.markers]
        except PeerUnavailable as error:
            logger.info("writing markers through broker %d failed: %s", broker_id, error)
        except Exception:
            logger.exception(
                "writing markers through broker %d failed; this is a bug in Odradek", broker_id
            )
        for number, piece in enumerate(pieces):
            heard = answers[number] if number < len(answers) else {}
            nothing = ErrorCode.network_exception
            if not piece.future.done():
                piece.future.set_result({one: heard.get(one, nothing) for one in piece.partitions})

    def close(self) -> None:
        self._batches.close()


def _done(code: ErrorCode) -> bool:
    return code in (ErrorCode.none, ErrorCode.invalid_producer_epoch)


def _encode(piece: _Piece) -> Struct:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in piece.partitions:
        topics[topic].append(partition)
    marker = piece.marker
    return Struct(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
        topics=[
            Struct(name=name, partition_indexes=partitions) for name, partitions in topics.items()
        ],
    )


def _decode(marker: Struct) -> Results:
    return {
        TopicPartition(topic.name, one.partition_index): ErrorCode(one.error_code)
        for topic in marker.topics
        for one in topic.partitions
    }
