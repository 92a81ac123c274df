"""The transaction coordinator of this broker: decisions, markers, timeouts. Does the I/O.

A transaction ends in two steps. EndTxn writes the decision (PrepareCommit) to
`__transaction_state` and is answered when that is committed: from then on the outcome cannot
change. Then a task writes the markers into all partitions and, when all are committed, the end
(CompleteCommit). A coordinator that has been loaded does the second step for all decisions that it
finds, so after a crash in between the next leader of the partition completes the transaction.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from odradek_broker.coordinator.internal_topics import TRANSACTION_TOPIC
from odradek_broker.coordinator.result import NOTHING, CoordinatorResult, Moment
from odradek_broker.coordinator.service import CoordinatorService, CoordinatorTopic
from odradek_broker.metadata.features import TRANSACTION_VERSION
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.settings import Settings
from odradek_broker.txn import transitions
from odradek_broker.txn.markers import FencedError, MarkerSender, TxnMarker
from odradek_broker.txn.metadata import TransactionMetadata
from odradek_broker.txn.metrics import TransactionMetrics
from odradek_broker.txn.shard import TransactionShard, result_of, tombstone
from odradek_broker.txn.states import PREPARED, Event, next_state
from odradek_broker.txn.transitions import NeedsProducerIdError, Step
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import ProducerId, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

# At most so many new producer ids are allocated for one request.
FRESH_IDS_MAX = 3
# A request waits this long for markers that are being written, before the client has to retry.
SETTLE_SECONDS = 0.1
RETRY_SECONDS = 0.2

Decide = Callable[[TransactionMetadata | None, int, ProducerId | None], Step]


class TransactionCoordinator:
    def __init__(
        self,
        settings: Settings,
        partitions: PartitionService,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        next_producer_id: Callable[[], Awaitable[ProducerId]],
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._clock = clock
        self._next_producer_id = next_producer_id
        self.metrics = TransactionMetrics()
        self._markers: MarkerSender | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # By transactional id: transactions whose markers are being written; set when done.
        self._marking: dict[str, tuple[TransactionMetadata, asyncio.Event]] = {}
        self.shards = CoordinatorService(
            CoordinatorTopic(
                TRANSACTION_TOPIC,
                default_partitions=settings.int("transaction.state.log.num.partitions"),
                write_timeout_ms=float(settings.int("request.timeout.ms")),
            ),
            lambda _: TransactionShard(),
            partitions,
            clock,
            loop,
            on_active=self._on_active,
        )

    def start(self, markers: MarkerSender) -> None:
        self._markers = markers
        self.shards.start()
        interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        self._spawn(self._every(interval, self._abort_timed_out))
        interval = "transaction.remove.expired.transaction.cleanup.interval.ms"
        self._spawn(self._every(interval, self._remove_expired))

    def close(self) -> None:
        self.shards.close()
        for task in list(self._tasks):
            task.cancel()
        if self._markers is not None:
            self._markers.close()

    @property
    def version(self) -> int:
        """The finalized transaction.version of the cluster; 0 if there is none."""
        return self._partitions.image.features.get(TRANSACTION_VERSION, 0)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- requests -----------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[ProducerId, int] | None
    ) -> Step:
        if not 0 < timeout_ms <= self._settings.int("transaction.max.timeout.ms"):
            raise KafkaError(ErrorCode.invalid_transaction_timeout)

        def decide(
            current: TransactionMetadata | None, now_ms: int, fresh_id: ProducerId | None
        ) -> Step:
            return transitions.init_producer_id(
                current,
                transactional_id,
                timeout_ms,
                expected,
                server_version=self.version,
                now_ms=now_ms,
                fresh_id=fresh_id,
            )

        step = await self._decide(transactional_id, decide)
        if step.error is ErrorCode.concurrent_transactions:
            # The open transaction of the previous instance is being aborted, usually quickly.
            await self._until_settled(transactional_id)
            step = await self._decide(transactional_id, decide)
        return step

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        version: int,
    ) -> None:
        wanted = frozenset(partitions)

        def decide(current: TransactionMetadata | None, now_ms: int, _: ProducerId | None) -> Step:
            return transitions.add_partitions(
                current, producer_id, producer_epoch, wanted, version=version, now_ms=now_ms
            )

        await self._decide(transactional_id, decide)

    async def verify_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        def look(shard: TransactionShard, _: Moment) -> dict[TopicPartition, ErrorCode]:
            current = shard.get(transactional_id)
            return transitions.verify_partitions(current, producer_id, producer_epoch, partitions)

        return await self.shards.read(self.shards.partition_of(transactional_id), look)

    async def end_txn(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        *,
        commit: bool,
        version: int,
    ) -> Step:
        def decide(
            current: TransactionMetadata | None, now_ms: int, fresh_id: ProducerId | None
        ) -> Step:
            return transitions.end_txn(
                current,
                producer_id,
                producer_epoch,
                commit=commit,
                version=version,
                now_ms=now_ms,
                fresh_id=fresh_id,
            )

        return await self._decide(transactional_id, decide)

    async def describe(self, transactional_id: str) -> TransactionMetadata:
        index = self.shards.partition_of(transactional_id)
        found = await self.shards.read(index, lambda shard, _: shard.get(transactional_id))
        if found is None:
            raise KafkaError(ErrorCode.transactional_id_not_found)
        return found

    async def _decide(self, transactional_id: str, decide: Decide) -> Step:
        """The step, once it is committed; the markers of a decided end are being written then."""
        await self._until_settled(transactional_id)
        fresh_id: ProducerId | None = None
        for _ in range(FRESH_IDS_MAX):
            with suppress(NeedsProducerIdError):
                return await self._write(transactional_id, decide, fresh_id)
            fresh_id = await self._next_producer_id()
        raise KafkaError(ErrorCode.concurrent_transactions)

    async def _write(
        self, transactional_id: str, decide: Decide, fresh_id: ProducerId | None
    ) -> Step:
        index = self.shards.partition_of(transactional_id)
        after: TransactionMetadata | None = None

        def decided(shard: TransactionShard, now: Moment) -> CoordinatorResult[Step]:
            nonlocal after
            step = decide(shard.get(transactional_id), now.wall_ms, fresh_id)
            after = step.after
            return result_of(step)

        try:
            step = await self.shards.write(index, decided)
        except KafkaError:
            if after is not None and after.state in PREPARED:
                self._on_active(
                    index
                )  # if the record is in the log, the transaction must be completed
            raise
        if step.after is not None and step.after.state in PREPARED:
            self._finish(index, step.after)
        return step

    # --- the second step: markers ---------------------------------------------------------------

    def _on_active(self, index: int) -> None:
        self._spawn(self._finish_all(index))

    async def _finish_all(self, index: int) -> None:
        """Completes the decided transactions of this partition, when they are committed."""
        while True:
            try:
                for one in await self.shards.read(index, lambda s, _: list(s.prepared())):
                    self._finish(index, one)
                return
            except KafkaError as error:
                if error.code is ErrorCode.not_coordinator:
                    return
            await asyncio.sleep(RETRY_SECONDS)

    def _finish(self, index: int, decided: TransactionMetadata) -> None:
        under_way = self._marking.get(decided.transactional_id)
        if under_way is None or under_way[0] != decided:
            self._marking[decided.transactional_id] = decided, asyncio.Event()
            self._spawn(self._mark(index, decided))

    async def _mark(self, index: int, decided: TransactionMetadata) -> None:
        event = self._marking[decided.transactional_id][1]
        try:
            while True:
                epoch = self._epoch(index, decided)
                if epoch is None:
                    return
                await self._mark_once(index, decided, epoch)
        except FencedError:
            # This broker may still lead, in a newer epoch: start again with that one.
            if self._epoch(index, decided) is not None:
                self._on_active(index)
        except Exception:
            logger.exception(
                "completing the transaction of %s failed; this is a bug in Odradek",
                decided.transactional_id,
            )
        finally:
            event.set()
            if self._marking.get(decided.transactional_id, (None, None))[1] is event:
                del self._marking[decided.transactional_id]

    def _epoch(self, index: int, decided: TransactionMetadata) -> int | None:
        """The coordinator epoch, while this broker has to complete the transaction."""
        shard = self.shards.shard(index)
        if shard is None or shard.get(decided.transactional_id) != decided:
            return None
        return shard.coordinator_epoch

    async def _mark_once(self, index: int, decided: TransactionMetadata, epoch: int) -> None:
        assert self._markers is not None
        marker = TxnMarker(
            decided.producer_id,
            decided.producer_epoch,
            decided.commits,
            epoch,
            decided.client_transaction_version,
        )
        await self._markers.write(
            marker, decided.partitions, lambda: self._epoch(index, decided) == epoch
        )

        def complete(shard: TransactionShard, now: Moment) -> CoordinatorResult[bool]:
            if shard.get(decided.transactional_id) != decided:
                return CoordinatorResult([], False)
            completed = transitions.complete(decided, now.wall_ms)
            return CoordinatorResult(result_of(Step(completed)).records, True)

        try:
            completes = await self.shards.write(index, complete)
        except KafkaError as error:
            logger.info(
                "completing the transaction of %s failed: %s", decided.transactional_id, error
            )
            await asyncio.sleep(RETRY_SECONDS)
        else:
            self.metrics.committed += completes and decided.commits
            self.metrics.aborted += completes and not decided.commits

    async def _until_settled(self, transactional_id: str) -> None:
        """Waits shortly for markers that are being written, rather than make the client retry."""
        under_way = self._marking.get(transactional_id)
        if under_way is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await under_way[1].wait()

    # --- periodic work ----------------------------------------------------------------------------

    async def _every(self, setting: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._settings.int(setting) / 1000)
            try:
                await work()
            except KafkaError as error:
                logger.info("periodic work of transactions failed: %s", error)
            except Exception:
                logger.exception("periodic work of transactions failed; this is a bug in Odradek")

    async def check_timeouts(self) -> None:
        """The periodic work, now: in tests, after the clock jumped."""
        await self._abort_timed_out()
        await self._remove_expired()

    async def _abort_timed_out(self) -> None:
        now_ms = self._clock.now_ms()
        for _, shard in list(self.shards.shards()):
            for one in list(shard.transactions.values()) if shard else ():
                if one.timed_out(now_ms):
                    await self._fence(one)

    async def _fence(self, timed_out: TransactionMetadata) -> None:
        def decide(
            current: TransactionMetadata | None, now_ms: int, fresh_id: ProducerId | None
        ) -> Step:
            if current != timed_out:
                return Step(None)
            return transitions.fence(
                current, server_version=self.version, now_ms=now_ms, fresh_id=fresh_id
            )

        try:
            step = await self._decide(timed_out.transactional_id, decide)
            if step.after is not None:  # None: its client has just ended it
                logger.info("the transaction of %s timed out", timed_out.transactional_id)
                self.metrics.timed_out += 1
        except KafkaError as error:
            logger.info(
                "aborting the transaction of %s failed: %s", timed_out.transactional_id, error
            )

    async def _remove_expired(self) -> None:
        now_ms = self._clock.now_ms()
        expiration_ms = self._settings.int("transactional.id.expiration.ms")
        for index, shard in list(self.shards.shards()):
            for one in list(shard.transactions.values()) if shard else ():
                if transitions.may_expire(one, now_ms, expiration_ms):
                    await self._remove(index, one)

    async def _remove(self, index: int, expired: TransactionMetadata) -> None:
        def decide(shard: TransactionShard, _: Moment) -> CoordinatorResult[None]:
            if shard.get(expired.transactional_id) != expired:
                return NOTHING
            next_state(expired.state, Event.EXPIRE)
            return tombstone(expired.transactional_id)

        await self.shards.write(index, decide)
