"""Asks the coordinator whether a partition is in a transaction, or adds it (KIP-890).

Used by leaders that get a transactional batch, and by the group coordinator for offsets of a
transaction. Clients of transaction version 2 do not send AddPartitionsToTxn: the leader adds its
partition when the first batch arrives. For older clients it only verifies.

If that fails, the client gets NOT_ENOUGH_REPLICAS, as in Kafka, and retries.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from odradek_broker.coordinator.broker_calls import BrokerCalls
from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.coordinator.internal_topics import TRANSACTION_TOPIC
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.runtime.peer import PeerUnavailable
from odradek_broker.runtime.settings import Settings
from odradek_broker.txn.channels import Batches
from odradek_broker.txn.metrics import VerifierMetrics
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId, ProducerId, TopicPartition
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

ADD_PARTITIONS_TO_TXN, VERSION = 24, 5
TIMEOUT_MS = 10_000.0  # less than clients wait for a produce request

UNKNOWN = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.network_exception,
    }
)


class Question(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    partition: TopicPartition
    add: bool


class _Asked(NamedTuple):
    question: Question
    future: "asyncio.Future[ErrorCode]"


class TransactionVerifier:
    def __init__(
        self, calls: BrokerCalls, image: Callable[[], MetadataImage], settings: Settings
    ) -> None:
        self._calls = calls
        self._image = image
        # Retried while the markers of the previous transaction are being written.
        self._backoff_ms = settings.int("add.partitions.to.txn.retry.backoff.ms")
        self._retry_ms = settings.int("add.partitions.to.txn.retry.backoff.max.ms")
        self._batches: Batches[_Asked] = Batches(self._request)
        self._tasks: set[asyncio.Task[None]] = set()
        self.metrics = VerifierMetrics()

    def start(self, question: Question, answered: Callable[[ErrorCode], None]) -> None:
        """`verify` for callers that cannot await; calls back exactly once."""

        async def run() -> None:
            code = ErrorCode.unknown_server_error
            try:
                code = await self.verify(question)
            finally:
                answered(code)

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def verify(self, question: Question) -> ErrorCode:
        """NONE if the partition is in the transaction (now); else the coordinator's error."""
        waited_ms = 0
        self.metrics.verifications += 1
        while True:
            code = await self._ask(question)
            if code is not ErrorCode.concurrent_transactions or waited_ms >= self._retry_ms:
                self.metrics.failures += code is not ErrorCode.none
                return code
            await asyncio.sleep(self._backoff_ms / 1000)
            waited_ms += self._backoff_ms

    async def _ask(self, question: Question) -> ErrorCode:
        topic = self._image().topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return ErrorCode.coordinator_not_available
        index = partition_for(question.transactional_id, len(topic.partitions))
        leader = topic.partitions[index].leader
        if leader < 0:
            return ErrorCode.coordinator_not_available
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._batches.put(leader, _Asked(question, future))
        return await future

    async def _request(self, broker_id: BrokerId, asked: list[_Asked]) -> None:
        answers: dict[tuple[str, TopicPartition], ErrorCode] = {}
        nothing = ErrorCode.network_exception
        one_by_one = _without_repetition(asked)
        try:
            request = Struct(transactions=[_encode(one.question) for one in one_by_one])
            response = await self._calls.call(
                broker_id, ADD_PARTITIONS_TO_TXN, VERSION, request, TIMEOUT_MS
            )
            nothing = ErrorCode(response.error_code) or nothing
            for transaction in response.results_by_transaction:
                for topic in transaction.topic_results:
                    for result in topic.results_by_partition:
                        partition = TopicPartition(topic.name, result.partition_index)
                        code = ErrorCode(result.partition_error_code)
                        answers[transaction.transactional_id, partition] = code
        except PeerUnavailable as error:
            logger.info("verifying transactions with broker %d failed: %s", broker_id, error)
        except Exception:
            logger.exception(
                "verifying transactions with broker %d failed; this is a bug in Odradek", broker_id
            )
        late = [one for one in asked if one not in one_by_one]
        for one in one_by_one:
            key = one.question.transactional_id, one.question.partition
            if not one.future.done():
                one.future.set_result(answers.get(key, nothing))
        for one in late:
            self._batches.put(broker_id, one)

    def close(self) -> None:
        self._batches.close()
        for task in self._tasks:
            task.cancel()


def _without_repetition(asked: list[_Asked]) -> list[_Asked]:
    """Results are matched by transactional id and partition, so each pair is sent once."""
    first: dict[tuple[str, TopicPartition], _Asked] = {}
    for one in asked:
        first.setdefault((one.question.transactional_id, one.question.partition), one)
    return list(first.values())


def _encode(question: Question) -> Struct:
    return Struct(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        verify_only=not question.add,
        topics=[Struct(name=question.partition.topic, partitions=[question.partition.partition])],
    )


def for_client(code: ErrorCode, *, knows_abortable: bool, knows_concurrent: bool) -> ErrorCode:
    """The coordinator's error as an error that the producer's version understands."""
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and not knows_abortable:
        return ErrorCode.invalid_txn_state
    if code in UNKNOWN or (code is ErrorCode.concurrent_transactions and not knows_concurrent):
        return ErrorCode.not_enough_replicas
    return code
