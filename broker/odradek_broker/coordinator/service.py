"""All shards of one coordinator on this broker: loads them, appends their records, responds.

Called by `group/service.py` and `txn/service.py`. It subscribes to the partitions that this broker
leads (`PartitionService.watch_roles`) and to changes of the metadata. The contract is in
`coordinator/__init__.py`. Loading runs as a task: bytes are read in a thread, and replayed in
chunks, so that the event loop is not blocked.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from odradek_broker.coordinator.hashing import partition_for
from odradek_broker.coordinator.host import ReloadNeeded, Reply, ShardHost
from odradek_broker.coordinator.loading import batches_of, replay_batch
from odradek_broker.coordinator.result import CoordinatorResult, Moment, Producer, as_error
from odradek_broker.coordinator.shard import S
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.clock import Clock
from odradek_broker.runtime.disk import File
from odradek_broker.runtime.tasks import Cancellable
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import LeaderEpoch, Offset

logger = logging.getLogger(__name__)

T = TypeVar("T")

Decide = Callable[[S, Moment], CoordinatorResult[T]]

# Replayed without yielding to the event loop: some 2,000 offsets, about 10 ms.
LOAD_CHUNK_BYTES = 256 * 1024
# A timer that could not write (too few in-sync replicas) is retried after this long.
RETRY_MS = 1000.0
# A shard whose log cannot be read is reloaded after this long.
RELOAD_SECONDS = 1.0

# Errors of the log as a coordinator's clients get them; Kafka's table.
TRANSLATED = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}


def translated(error: KafkaError) -> KafkaError:
    code = TRANSLATED.get(error.code)
    return error if code is None else KafkaError(code, error.message or "")


class _Led(Generic[S]):
    """A partition that this broker leads: its shard, being loaded (`host` is None) or in use."""

    def __init__(self, partition: Partition, service: "CoordinatorService[S]") -> None:
        self.partition = partition
        self.index = partition.topic_partition.partition
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.host: ShardHost[S] | None = None
        self.loading: asyncio.Task[None] | None = None
        self.timer: Cancellable | None = None
        self.timer_at_ms = float("inf")
        self._service = service

    @property
    def batch_bytes_max(self) -> int:
        config = self.partition.log.config
        return min(config.max_message_bytes, config.segment_bytes)

    def append(self, batch: bytes) -> Offset:
        """The host's `AppendLog`: like a produce request with acks=all."""
        self.partition.check_in_sync_replicas()
        return self._service.append(self.partition, batch)

    def wait_for_commit(self) -> None:
        """`acknowledged` is called when everything that was replayed is committed."""
        assert self.host is not None
        self.partition.when_committed(self.host.last_offset, self, 0)

    def acknowledged(self, index: int, error: ErrorCode) -> None:  # noqa: ARG002
        """Called by the partition: committed, or failed. A shrunk ISR does not matter here."""
        if self.host is None:
            return
        if error in (ErrorCode.none, ErrorCode.not_enough_replicas_after_append):
            self.host.committed(self.partition.high_watermark)
        else:
            self.host.refuse_waiting(translated(KafkaError(error)))


class CoordinatorTopic(NamedTuple):
    """The internal topic of a coordinator, and how it writes to it."""

    name: str
    default_partitions: int  # while the topic does not exist
    write_timeout_ms: float
    codec: int = 0  # compression of the batches, as in the attributes of a batch


class CoordinatorService(Generic[S]):
    def __init__(
        self,
        topic: CoordinatorTopic,
        new_shard: Callable[[int], S],
        partitions: PartitionService,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        on_active: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.topic = topic.name
        self._new_shard = new_shard
        self._partitions = partitions
        self._clock = clock
        self._loop = loop
        self._default_partitions = topic.default_partitions
        self._write_timeout_ms = topic.write_timeout_ms
        self._codec = topic.codec
        self._on_active = on_active  # called when a shard was loaded, or has a newer epoch
        self._led: dict[int, _Led[S]] = {}
        self._closed = False
        # For metrics.
        self.loads = 0
        self.last_load_ms = 0.0

    def start(self) -> None:
        """Starts to coordinate the partitions that this broker leads now and later."""
        self._partitions.watch_roles(self.topic, self._role_changed)

    def close(self) -> None:
        """The broker stops: unloads all shards; waiting requests fail."""
        self._closed = True
        for index in list(self._led):
            self._unload(index)

    # --- keys and shards ----------------------------------------------------------------------

    @property
    def partition_count(self) -> int:
        topic = self._partitions.image.topics.get(self.topic)
        return len(topic.partitions) if topic else self._default_partitions

    def partition_of(self, key: str) -> int:
        return partition_for(key, self.partition_count)

    def shards(self) -> Iterator[tuple[int, S | None]]:
        """The shards of this broker; None while one is being loaded."""
        for index, led in self._led.items():
            yield index, led.host.shard if led.host is not None else None

    def shard(self, index: int) -> S | None:
        """The shard of a partition, if this broker leads it and the shard is loaded."""
        led = self._led.get(index)
        return led.host.shard if led is not None and led.host is not None else None

    # --- deciding -----------------------------------------------------------------------------

    async def write(
        self,
        partition: int,
        decide: Decide[S, T],
        *,
        producer: Producer | None = None,
        timeout_ms: float | None = None,
        parks: bool = False,
    ) -> T:
        """See __init__. `parks`: the decision may park the request, so there is no timeout."""
        led = self._active(partition)
        if self._partitions.is_isolated_leader(led.partition):
            raise KafkaError(ErrorCode.not_coordinator)
        assert led.host is not None
        now = self._now()
        future: asyncio.Future[T] = self._loop.create_future()
        result = decide(led.host.shard, now)
        self._settle(led, result, _reply_to(future), now, producer)
        if parks:
            return await future
        return await self._within(future, timeout_ms)

    async def read(self, partition: int, look: Callable[[S, Moment], T]) -> T:
        """The result of `look`, once everything that it saw is committed."""
        return await self.write(
            partition, lambda shard, now: CoordinatorResult((), look(shard, now))
        )

    async def write_marker(
        self,
        partition: int,
        producer: Producer,
        marker: EndTxnMarker,
        transaction_version: int = 0,
    ) -> None:
        """Ends the producer's transaction in this partition; waits for the commit of the marker."""
        led = self._active(partition)
        host = led.host
        assert host is not None
        led.partition.check_in_sync_replicas()
        now_ms = self._clock.now_ms()
        offset = self._partitions.append_marker(
            led.partition, producer, marker, now_ms, transaction_version
        )
        host.shard.replay_end_transaction(producer.id, committed=marker.commit)
        future: asyncio.Future[None] = self._loop.create_future()
        if host.appended(offset, _reply_to(future), None):
            led.wait_for_commit()
        await self._within(future, None)

    def append(self, partition: Partition, batch: bytes) -> Offset:
        return self._partitions.append_own(partition, batch, self._clock.now_ms())

    def _active(self, partition: int) -> _Led[S]:
        led = self._led.get(partition)
        if led is None:
            raise KafkaError(ErrorCode.not_coordinator)
        if led.host is None:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return led

    def _settle(
        self,
        led: _Led[S],
        result: CoordinatorResult[Any],
        reply: Reply | None,
        now: Moment,
        producer: Producer | None = None,
    ) -> None:
        assert led.host is not None
        led.host.committed(led.partition.high_watermark)
        try:
            if led.host.settle(result, reply, now, producer):
                led.wait_for_commit()
        except KafkaError as error:
            raise translated(error) from error
        except ReloadNeeded as reload:
            logger.warning("%s: reloading the shard: %s", led.partition.topic_partition, reload)
            self._reload(led)
            raise translated(reload.cause) from reload
        self._set_timer(led)

    async def _within(self, future: "asyncio.Future[T]", timeout_ms: float | None) -> T:
        if not future.done():
            timeout_ms = self._write_timeout_ms if timeout_ms is None else timeout_ms
            error = KafkaError(
                ErrorCode.coordinator_not_available, f"not committed within {timeout_ms:.0f} ms"
            )
            timer = self._loop.call_later(timeout_ms / 1000, _reply_to(future), error)
            try:
                return await future
            finally:
                timer.cancel()
        return await future

    def now_ms(self) -> int:
        """Wall time, as decisions get it."""
        return self._clock.now_ms()

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic_ms(), self._clock.now_ms())

    # --- timers and metadata --------------------------------------------------------------------

    def metadata_changed(self, delta: MetadataDelta, _: LeaderEpoch) -> None:
        """Subscribed after the partitions, so that roles are up to date."""
        for led in list(self._led.values()):
            if led.host is not None:
                self._periodic(led, partial(led.host.shard.metadata_changed, delta))

    def _set_timer(self, led: _Led[S], at_least_ms: float = 0.0) -> None:
        if led.host is None:
            return
        at_ms = max(led.host.shard.next_deadline_ms(), at_least_ms)
        if at_ms >= led.timer_at_ms:
            return  # the timer that is set fires earlier
        if led.timer is not None:
            led.timer.cancel()
        led.timer_at_ms = at_ms
        delay_ms = max(0.0, at_ms - self._clock.monotonic_ms())
        led.timer = self._loop.call_later(delay_ms / 1000, self._on_timer, led)

    def _on_timer(self, led: _Led[S]) -> None:
        led.timer = None
        led.timer_at_ms = float("inf")
        if led.host is None or self._led.get(led.index) is not led:
            return
        shard = led.host.shard
        if shard.next_deadline_ms() <= self._clock.monotonic_ms():
            leading = led.partition.leading
            if leading is None or leading.under_min_isr:
                self._set_timer(led, self._clock.monotonic_ms() + RETRY_MS)
                return
            self._periodic(led, shard.expire)
        self._set_timer(led)

    def check_timers(self) -> None:
        """The clock jumped (in tests): does at once what is due now, and sets all timers anew."""
        for led in list(self._led.values()):
            if led.timer is not None:
                led.timer.cancel()
            self._on_timer(led)

    def _periodic(self, led: _Led[S], decide: Callable[[Moment], CoordinatorResult[None]]) -> None:
        now = self._now()
        try:
            self._settle(led, decide(now), None, now)
        except KafkaError as error:
            logger.warning("%s: periodic work failed: %s", led.partition.topic_partition, error)
        except Exception:
            logger.exception(
                "%s: periodic work failed; this is a bug in Odradek", led.partition.topic_partition
            )
            self._reload(led)

    # --- roles and loading ------------------------------------------------------------------------

    def _role_changed(self, partition: Partition) -> None:
        index = partition.topic_partition.partition
        led = self._led.get(index)
        if partition.leading is None or self._closed:
            self._unload(index)
        elif led is None or led.partition is not partition:
            self._unload(index)
            self._load(partition)
        elif partition.leader_epoch > led.leader_epoch:
            led.leader_epoch = partition.leader_epoch
            if led.host is not None:
                led.host.shard.begin_epoch(partition.leader_epoch)
                self._on_active(index)

    def _unload(self, index: int) -> None:
        led = self._led.pop(index, None)
        if led is None:
            return
        self._abandon(led)

    def _abandon(self, led: _Led[S]) -> None:
        host, led.host = led.host, None
        if led.loading is not None:
            led.loading.cancel()
            led.loading = None
        if led.timer is not None:
            led.timer.cancel()
            led.timer, led.timer_at_ms = None, float("inf")
        if host is not None:
            host.fail(KafkaError(ErrorCode.not_coordinator))

    def _reload(self, led: _Led[S]) -> None:
        if self._led.get(led.index) is led:
            self._unload(led.index)
            self._load(led.partition)

    def _load(self, partition: Partition) -> None:
        led = _Led(partition, self)
        self._led[led.index] = led
        led.loading = self._loop.create_task(self._run_load(led))

    async def _run_load(self, led: _Led[S]) -> None:
        while True:
            try:
                await self._load_once(led)
                return
            except Exception as error:
                if isinstance(error, KafkaError | OSError):
                    logger.error("%s: loading failed: %s", led.partition.topic_partition, error)
                else:
                    logger.exception(
                        "%s: loading failed; this is a bug in Odradek",
                        led.partition.topic_partition,
                    )
                await asyncio.sleep(RELOAD_SECONDS)

    async def _load_once(self, led: _Led[S]) -> None:
        started_ms = self._clock.monotonic_ms()
        log = led.partition.log
        shard = self._new_shard(led.index)
        offset = log.log_start_offset
        # Cleaner and mover may be running, but nothing is appended: only loaded hosts append.
        # Batches that were queued before are written when the role is taken or, for a reload, at
        # the end of the loop pass, for which the first await below gives time.
        await asyncio.sleep(0)
        end_offset = log.log_end_offset
        while offset < end_offset:
            found, first = log.read(offset, LOAD_CHUNK_BYTES, end_offset, min_one_batch=True)
            if found is None:
                if log.written_offset >= end_offset:
                    break  # a gap at the end
                await asyncio.sleep(0)
                continue
            file = cast(File, found.file)
            chunk = await asyncio.to_thread(file.pread, found.length, found.position)
            offset = max(offset, first)
            for header, batch in batches_of(chunk):
                if header.next_offset > offset:
                    offset = replay_batch(shard, header, batch)
            await asyncio.sleep(0)
        self._become_active(led, shard, end_offset, started_ms)

    def _become_active(self, led: _Led[S], shard: S, end_offset: Offset, started_ms: float) -> None:
        host = ShardHost(shard, led, codec=self._codec)
        host.last_offset = end_offset - 1
        host.high_watermark = led.partition.high_watermark
        now = self._now()
        self.loads += 1
        self.last_load_ms = now.monotonic_ms - started_ms
        logger.log(
            logging.INFO if end_offset else logging.DEBUG,  # a new topic has nothing to load
            "%s: coordinator loaded up to offset %d in %.0f ms",
            led.partition.topic_partition,
            end_offset,
            self.last_load_ms,
        )
        result = shard.loaded(led.leader_epoch, self._partitions.image, now)
        led.host, led.loading = host, None
        self._settle(led, result, None, now)
        if not host.all_committed:
            led.wait_for_commit()
        self._on_active(led.index)


def _reply_to(future: "asyncio.Future[T]") -> Reply:
    def reply(answer: Any) -> None:
        if future.done():
            return  # timed out, or cancelled
        error = as_error(answer)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(answer)

    return reply
