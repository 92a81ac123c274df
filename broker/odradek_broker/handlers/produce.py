"""Produce (0), v3–13: append record batches to partitions.

    acks  0  nothing is answered; an error closes the connection, so that the client notices
          1  answered when this broker wrote it (page cache)
         -1  answered when all in-sync replicas have it; waits in the purgatory without a thread;
             a leader that was left behind by the others closes the connection

Hot path: no coroutine, no copy of the records. The bytes stay in the frame's buffer, the log
patches offsets into them, and one writev per partition takes them to the file at the end of
the loop pass.

The first batch of a transaction in a partition waits until the coordinator has confirmed that the
partition belongs to it (partition/verification.py). Since v12 the partition is put there by that
(KIP-890), before the client did so with AddPartitionsToTxn. TRANSACTION_ABORTABLE is known since
v11, before it is INVALID_TXN_STATE.
"""

from functools import partial
from typing import Final

from odradek_broker.controller.topic_names import INTERNAL_TOPICS
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.leader_hints import LEADER_ERRORS, current_leader, endpoints
from odradek_broker.log.validation import RecordsRejectedError
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.waiting import Ticket
from odradek_broker.txn.verifier import Question, for_client
from odradek_broker.wire.compression import ZSTD
from odradek_broker.wire.primitives import NodeEndpoint
from odradek_broker.wire.produce import (
    ProducePartitionResult,
    ProduceRequest,
    decode_produce,
    encode_produce_response,
)
from odradek_broker.wire.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_AT,
    OFFSET_AND_LENGTH,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)

API_KEY: Final = 0
VERSIONS: Final = range(3, 14)

ACKS_ALL: Final = -1
ATTRIBUTES_LOW_BYTE_AT: Final = 22
# Clients that speak older versions do not know the codec (KIP-110).
ZSTD_FROM_VERSION: Final = 7
# Told with the log's start.
BAD_RECORDS: Final = (ErrorCode.invalid_record, ErrorCode.invalid_timestamp)
ABORTABLE_FROM_VERSION: Final = 11
ADDS_PARTITIONS_FROM_VERSION: Final = 12

Answers = tuple[str | None, bytes | None, list[ProducePartitionResult]]


def serve(ctx: RequestContext, frame: bytearray, body_at: int) -> None:
    request = decode_produce(ctx.api_version, frame, body_at)
    ProduceCall(ctx, request).start(request)


class ProduceCall(Ticket):
    """One produce request until every partition in it is settled."""

    __slots__ = (
        "_acks",
        "_asked",
        "_ctx",
        "_results",
        "_starting",
        "_transactional_id",
        "_unsettled",
    )

    def __init__(self, ctx: RequestContext, request: ProduceRequest) -> None:
        super().__init__(ctx.broker.clock.monotonic_ms() + max(request.timeout_ms, 0))
        self._ctx = ctx
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        # Not the request itself: a finished ticket may stay in the purgatory's heap until its
        # deadline, and would keep the frame with all its records in memory.
        self._asked = [(name, topic_id, len(asked)) for name, topic_id, asked in request.topics]
        # One result per partition in the order of the request. One that waits holds already
        # what it will say if all goes well.
        self._results: list[ProducePartitionResult] = []
        self._unsettled: set[int] = set()
        self._starting = True

    def start(self, request: ProduceRequest) -> None:
        broker = self._ctx.broker
        valid_acks = self._acks in (0, 1, ACKS_ALL)
        now_ms = broker.clock.now_ms()
        partitions = broker.partitions
        for name, topic_id, asked in request.topics:
            for index, records in asked:
                if name is not None:
                    partition = partitions.by_name.get((name, index))
                else:
                    assert topic_id is not None
                    partition = partitions.by_id.get((topic_id, index))
                try:
                    if partition is None:
                        raise KafkaError(partitions.why_missing(name or topic_id or b"", index))
                    if not valid_acks:
                        raise KafkaError(ErrorCode.invalid_required_acks)
                    self._append(partition, index, records, now_ms)
                except KafkaError as error:
                    self._refuse(partition, index, records, error)
        self._starting = False
        if not self._unsettled:
            self._answer()
        elif self._acks == ACKS_ALL:
            broker.partitions.park(self, broker.partitions.produce_waiting)

    def _append(
        self, partition: Partition, index: int, records: memoryview | None, now_ms: int
    ) -> None:
        topic = partition.topic_partition.topic
        if topic in INTERNAL_TOPICS:  # only the broker itself writes these
            raise KafkaError(ErrorCode.invalid_topic_exception)
        if not records:
            raise KafkaError(ErrorCode.invalid_record, "a produce request without records")
        if len(records) > ATTRIBUTES_LOW_BYTE_AT:
            attributes = records[ATTRIBUTES_LOW_BYTE_AT]
            if attributes & CODEC_MASK == ZSTD and self._ctx.api_version < ZSTD_FROM_VERSION:
                raise KafkaError(ErrorCode.unsupported_compression_type)
            if attributes & TRANSACTIONAL_BIT and len(records) >= HEADER_BYTES:
                self._append_in_transaction(partition, index, records, now_ms)
                return
        number = len(self._results)
        result = self._write(partition, index, records, now_ms, number)
        self._results.append(result)

    def _write(
        self, partition: Partition, index: int, records: memoryview, now_ms: int, number: int
    ) -> ProducePartitionResult:
        """Append; what will be said if all goes well. `number` is the result's place."""
        topic = partition.topic_partition.topic
        if self._acks == ACKS_ALL:
            partition.check_in_sync_replicas()
            if self._ctx.broker.partitions.leads_in_vain(partition):
                raise KafkaError(ErrorCode.not_leader_or_follower)
        info = partition.append(records, now_ms)
        if not info.duplicate:
            metrics = self._ctx.broker.metrics.topic(topic)
            metrics.total_produce_requests += 1
            metrics.bytes_in += len(records)
            metrics.messages_in += info.last_offset - info.first_offset + 1
        if self._acks == ACKS_ALL:
            self._unsettled.add(number)
            partition.when_committed(info.last_offset, self, number)
        elif self._acks == 1:
            self._unsettled.add(number)
            partition.when_written(info.last_offset, self, number)
        self._ctx.broker.partitions.mark_dirty(partition)
        return ProducePartitionResult(
            index, 0, info.first_offset, info.log_append_time_ms, partition.log.log_start_offset
        )

    # --- transactions ----------------------------------------------------------------------

    def _append_in_transaction(
        self, partition: Partition, index: int, records: memoryview, now_ms: int
    ) -> None:
        header = read_header(records)
        producer = header.producer_id, header.producer_epoch
        if not self._transactional_id:
            raise KafkaError(ErrorCode.transactional_id_authorization_failed)
        if header.producer_id < 0:
            raise KafkaError(ErrorCode.invalid_record, "a transaction without a producer id")
        number = len(self._results)
        waiting = partition.verifications
        begun = partition.log.producers.has_open_transaction(*producer)
        if (begun and not waiting.pending(*producer)) or not self._verifies:
            self._results.append(self._write(partition, index, records, now_ms, number))
            return
        partition.led_here()  # who does not lead has no business with the coordinator
        self._results.append(ProducePartitionResult(index))
        self._unsettled.add(number)

        def resume(code: ErrorCode) -> None:
            if not self.finished:  # else the client has given up, and sends it again
                self._write_verified(partition, index, records, header, number, code)

        adds = self._ctx.api_version >= ADDS_PARTITIONS_FROM_VERSION
        question = Question(self._transactional_id, *producer, partition.topic_partition, adds)
        verifier = self._ctx.broker.verifier
        assert verifier is not None
        waiting.wait(*producer, header.base_sequence, partial(verifier.start, question), resume)

    @property
    def _verifies(self) -> bool:
        return self._ctx.api_version >= ADDS_PARTITIONS_FROM_VERSION or (
            self._ctx.broker.settings.bool("transaction.partition.verification.enable")
        )

    def _write_verified(
        self,
        partition: Partition,
        index: int,
        records: memoryview,
        header: BatchHeader,
        number: int,
        code: ErrorCode,
    ) -> None:
        """The coordinator has answered, or it is of no use any more that it does."""
        version = self._ctx.api_version
        try:
            if code is not ErrorCode.none:
                told = for_client(
                    code,
                    knows_abortable=version >= ABORTABLE_FROM_VERSION,
                    knows_concurrent=version >= ADDS_PARTITIONS_FROM_VERSION,
                )
                raise KafkaError(told, f"the coordinator of the transaction says {code.name}")
            _check_order(partition, header)
            now_ms = self._ctx.broker.clock.now_ms()
            self._results[number] = self._write(partition, index, records, now_ms, number)
            partition.verifications.begun(header.producer_id)
            if self._acks != 0:
                return  # acknowledged() follows
        except KafkaError as error:
            self._results[number] = self._refusal(partition, index, records, error)
        self._unsettled.discard(number)
        self._answer_if_settled()

    def _refuse(
        self,
        partition: Partition | None,
        index: int,
        records: memoryview | None,
        error: KafkaError,
    ) -> None:
        self._results.append(self._refusal(partition, index, records, error))

    def _refusal(
        self,
        partition: Partition | None,
        index: int,
        records: memoryview | None,
        error: KafkaError,
    ) -> ProducePartitionResult:
        if partition is not None:
            metrics = self._ctx.broker.metrics.topic(partition.topic_partition.topic)
            metrics.total_produce_requests += 1
            metrics.failed_produce_requests += 1
            metrics.bytes_rejected += len(records or b"")
        result = ProducePartitionResult(index, error.code, error_message=error.message)
        if partition is not None and error.code in BAD_RECORDS and _is_one_batch(records):
            result.log_start_offset = partition.log.log_start_offset
            if isinstance(error, RecordsRejectedError):
                result.record_errors = error.record_errors
        return result

    def acknowledged(self, index: int, error: ErrorCode) -> None:
        """Called by the partition when the `index`-th append is written or committed."""
        if self.finished:
            return  # timed out before; the client has its answer
        if error:
            _fail(self._results[index], error)
        self._unsettled.discard(index)
        self._answer_if_settled()

    def _answer_if_settled(self) -> None:
        if not self._unsettled and not self._starting:
            if self._acks == ACKS_ALL:
                self._ctx.broker.partitions.produce_waiting.finish(self)
            self._answer()

    def on_expired(self) -> None:
        """acks=all took longer than the request's timeout: written, but not known committed."""
        for number in self._unsettled:
            _fail(self._results[number], ErrorCode.request_timed_out)
        self._answer()

    def _answer(self) -> None:
        ctx = self._ctx
        failed = [result for result in self._results if result.error_code]
        if self._acks == 0:
            if failed:
                ctx.disconnect("an error in a produce request with acks=0")
            ctx.respond([], 0)
            return
        topics: list[Answers] = []
        at = 0
        for name, topic_id, count in self._asked:
            topics.append((name, topic_id, self._results[at : at + count]))
            at += count
        nodes = self._tell_leaders(topics) if failed else []
        response = encode_produce_response(
            ctx.api_version, ctx.correlation_id, topics, node_endpoints=nodes
        )
        ctx.respond([response], len(response))

    def _tell_leaders(self, topics: list[Answers]) -> list[NodeEndpoint]:
        """Say of what came to the wrong broker who the right one is, and where it is."""
        misled = [
            (name or topic_id or b"", one)
            for name, topic_id, results in topics
            for one in results
            if one.error_code in LEADER_ERRORS
        ]
        if misled and self._ctx.broker.partitions.left_behind:
            self._ctx.disconnect("this broker is cut off from the others; they know who leads")
        for topic, one in misled:
            one.current_leader = current_leader(self._ctx, topic, one.partition_index)
        return endpoints(self._ctx, [one.current_leader for _, one in misled])


def _is_one_batch(records: memoryview | None) -> bool:
    """What is not even that Kafka refuses before it looks at the log."""
    if records is None or len(records) < HEADER_BYTES:
        return False
    _, length = OFFSET_AND_LENGTH.unpack_from(records)
    return records[MAGIC_AT] == 2 and LOG_OVERHEAD + length == len(records)


def _check_order(partition: Partition, header: BatchHeader) -> None:
    """A batch that was kept waiting before this one, and refused, has to come again first."""
    floor = partition.verifications.floor(header.producer_id, header.producer_epoch)
    known = header.producer_id in partition.log.producers.entries
    if floor is not None and not known and header.base_sequence > floor:
        raise KafkaError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id}: sequence {header.base_sequence} before {floor}",
        )


def _fail(result: ProducePartitionResult, error: ErrorCode) -> None:
    """What a result that was promised becomes when the promise cannot be kept."""
    result.error_code = error
    result.base_offset = result.log_append_time_ms = result.log_start_offset = -1
