"""Produce (0), v3–13: append record batches to partitions.

    acks  0  no response; an error closes the connection, so that the client notices it
          1  answered when this broker has written the records (to the page cache)
         -1  answered when all in-sync replicas have them; the request waits in the purgatory,
             without a thread; a leader that is isolated from the controller closes the connection

Hot path: no coroutine, no copy of the records. The bytes stay in the frame, and one writev per
partition writes them, after their offsets, to the file at the end of the loop pass.

The first batch of a transaction in a partition waits until the transaction coordinator has
confirmed that the partition is part of the transaction (partition/verification.py). From v12 on
this verification adds the partition (KIP-890); older clients add it with AddPartitionsToTxn.
Clients know TRANSACTION_ABORTABLE from v11 on; older ones get INVALID_TXN_STATE.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from odradek_broker.controller.topic_names import INTERNAL_TOPICS
from odradek_broker.handlers.authorization import may_write_in
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.leader_hints import LEADER_ERRORS, current_leader, endpoints
from odradek_broker.handlers.throttling import throttle_produce
from odradek_broker.handlers.topic_access import TopicAccess
from odradek_broker.log.validation import RecordsRejectedError, only_batch
from odradek_broker.partition.partition import Partition
from odradek_broker.partition.waiting import Ticket
from odradek_broker.txn.verifier import Question, for_client
from odradek_protocol.acl_codes import AclOperation
from odradek_protocol.byte_range import ByteRange
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce,
    encode_produce_response,
)
from odradek_protocol.primitives import NodeEndpoint
from odradek_protocol.records.compression import ZSTD
from odradek_protocol.records.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)

API_KEY: Final = 0
VERSIONS: Final = range(3, 14)

ACKS_ALL: Final = -1
ATTRIBUTES_LOW_BYTE_AT: Final = 22
# Clients with older versions do not know the codec (KIP-110).
ZSTD_FROM_VERSION: Final = 7
NO_RECORDS: Final = "a produce request without records"
# Errors that are answered with the log start offset.
BAD_RECORDS: Final = (ErrorCode.invalid_record, ErrorCode.invalid_timestamp)
ABORTABLE_FROM_VERSION: Final = 11
ADDS_PARTITIONS_FROM_VERSION: Final = 12


def serve(ctx: RequestContext, frame: bytes, body_at: int) -> None:
    ProduceCall(ctx, decode_produce(ctx.api_version, frame, body_at)).start()


class ProduceCall(Ticket):
    """One produce request until every partition in it is settled."""

    __slots__ = (
        "_acks",
        "_appended",
        "_ctx",
        "_failed",
        "_partitions",
        "_starting",
        "_topics",
        "_transactional_id",
        "_unsettled",
        "_verifying",
    )

    def __init__(self, ctx: RequestContext, request: ProduceRequest) -> None:
        super().__init__(0.0)
        if request.acks == ACKS_ALL:  # the others do not wait for replicas
            self.deadline_ms = ctx.broker.clock.monotonic_ms() + max(request.timeout_ms, 0)
        self._ctx = ctx
        self._partitions = ctx.broker.partitions
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        # The records of a partition are dropped as soon as they are appended: a finished ticket may
        # stay in the purgatory's heap until its deadline, and would keep the frame in memory.
        self._topics = request.topics
        # In the order of the appends, which the partitions acknowledge by their index; None once
        # that has happened.
        self._appended: list[ProducePartition | None] = []
        # The transaction coordinator has not answered for these yet. Made when it is needed: a list
        # more per request costs 2 % of the instructions, most of it in the garbage collector.
        self._verifying: list[ProducePartition] | None = None
        # Invariant: the number of entries in `_verifying`, and of those in `_appended` but None.
        self._unsettled = 0
        self._failed = False
        self._starting = True

    def start(self) -> None:
        partitions = self._partitions
        now_ms = partitions.append_time_ms()
        valid_acks = self._acks == 1 or self._acks == 0 or self._acks == ACKS_ALL
        access: TopicAccess | None = None
        if self._ctx.broker.authorizer is not None:
            access = TopicAccess(self._ctx, AclOperation.WRITE)
        if (access is not None or self._transactional_id is None) and self._refuses_transaction():
            self._answer()
            return
        for topic in self._topics:
            name, topic_id = topic.name, topic.topic_id
            if access is not None and self._refuses(access, topic):
                continue
            for asked in topic.partitions:
                if name is not None:
                    partition = partitions.by_name.get((name, asked.index))
                else:
                    assert topic_id is not None
                    partition = partitions.by_id.get((topic_id, asked.index))
                try:
                    if partition is None:
                        # "" is a valid name, of a topic that does not exist.
                        topic_key = name if name is not None else topic_id or b""
                        raise KafkaError(partitions.why_missing(topic_key, asked.index))
                    if not valid_acks:
                        self._check_shape(asked)  # Kafka checks this before the records
                        raise KafkaError(ErrorCode.invalid_required_acks)
                    self._append(partition, asked, now_ms)
                except KafkaError as error:
                    self._refuse(partition, asked, error)
        self._starting = False
        if not self._unsettled:
            self._answer()
        elif self._acks == ACKS_ALL:
            partitions.park(self, partitions.produce_waiting)

    def _refuses_transaction(self) -> bool:
        """Refuses a request with transactional records, without an id that the client may use."""
        if not self._has_transaction():
            return False
        name = self._transactional_id
        if name is not None and may_write_in(self._ctx, name):
            return False
        for topic in self._topics:
            for asked in topic.partitions:
                error = KafkaError(ErrorCode.transactional_id_authorization_failed)
                self._refuse(None, asked, error)
        return True

    def _has_transaction(self) -> bool:
        for topic in self._topics:
            for asked in topic.partitions:
                records = asked.records
                if records is not None and len(records) > ATTRIBUTES_LOW_BYTE_AT:
                    attributes = records.data[records.start + ATTRIBUTES_LOW_BYTE_AT]
                    if attributes & TRANSACTIONAL_BIT:
                        return True
        return False

    def _refuses(self, access: TopicAccess, topic: ProduceTopic) -> bool:
        """Refuses all partitions of a topic that the client may not write to."""
        name = topic.name if topic.name is not None else topic.topic_id
        assert name is not None
        if not topic.partitions or access.allows(name, topic.partitions[0].index):
            return False
        for asked in topic.partitions:
            self._refuse(None, asked, KafkaError(ErrorCode.topic_authorization_failed))
        return True

    def _append(self, partition: Partition, asked: ProducePartition, now_ms: int) -> None:
        topic = partition.topic_partition.topic
        if topic in INTERNAL_TOPICS:  # only brokers write to these
            raise KafkaError(ErrorCode.invalid_topic_exception)
        records = asked.records
        if records is None or not len(records):
            raise KafkaError(ErrorCode.invalid_record, NO_RECORDS)
        if len(records) > ATTRIBUTES_LOW_BYTE_AT:
            attributes = records.data[records.start + ATTRIBUTES_LOW_BYTE_AT]
            if attributes & CODEC_MASK == ZSTD and self._ctx.api_version < ZSTD_FROM_VERSION:
                raise KafkaError(ErrorCode.unsupported_compression_type)
            if attributes & TRANSACTIONAL_BIT and len(records) >= HEADER_BYTES:
                self._append_in_transaction(partition, asked, records, now_ms)
                return
        self._write(partition, asked, records, now_ms)

    def _check_shape(self, asked: ProducePartition) -> None:
        """One batch of the current format, in a codec that the request's version knows."""
        records = asked.records
        if records is None or not len(records):
            raise KafkaError(ErrorCode.invalid_record, NO_RECORDS)
        header = only_batch(records)
        if header.attributes & CODEC_MASK == ZSTD and self._ctx.api_version < ZSTD_FROM_VERSION:
            raise KafkaError(ErrorCode.unsupported_compression_type)

    def _write(
        self, partition: Partition, asked: ProducePartition, records: ByteRange, now_ms: int
    ) -> None:
        """Append; `asked` gets the response for the case that the append succeeds."""
        if self._acks == ACKS_ALL:
            partition.check_in_sync_replicas()
            if self._partitions.is_isolated_leader(partition):
                raise KafkaError(ErrorCode.not_leader_or_follower)
        info = partition.append(records, now_ms)
        if not info.duplicate:
            size, count = len(records), info.last_offset - info.first_offset + 1
            metrics = self._ctx.broker.metrics.topic(partition.topic_partition.topic)
            metrics.total_produce_requests += 1
            metrics.bytes_in += size
            metrics.messages_in += count
            partition.load.appended(size, count)
        asked.records = None
        asked.base_offset = info.first_offset
        asked.log_append_time_ms = info.log_append_time_ms
        asked.log_start_offset = partition.log.log_start_offset
        if self._acks != 0:
            number = len(self._appended)
            self._appended.append(asked)
            self._unsettled += 1
            if self._acks == ACKS_ALL:
                partition.when_committed(info.last_offset, self, number)
            else:
                partition.when_written(info.last_offset, self, number)
        self._partitions.mark_dirty(partition)

    # --- transactions ----------------------------------------------------------------------

    def _append_in_transaction(
        self, partition: Partition, asked: ProducePartition, records: ByteRange, now_ms: int
    ) -> None:
        header = read_header(records.data, records.start)
        producer = header.producer_id, header.producer_epoch
        assert self._transactional_id is not None  # else the request was refused as a whole
        if header.producer_id < 0:
            raise KafkaError(ErrorCode.invalid_record, "a transaction without a producer id")
        waiting = partition.verifications
        begun = partition.log.producers.has_open_transaction(*producer)
        if (begun and not waiting.pending(*producer)) or not self._verifies:
            self._write(partition, asked, records, now_ms)
            return
        partition.led_here()  # only the leader asks the coordinator
        partition.log.producers.check_not_fenced(*producer)
        verifying = self._verifying
        if verifying is None:
            verifying = self._verifying = []
        verifying.append(asked)
        self._unsettled += 1

        def resume(code: ErrorCode) -> None:
            if not self.finished:  # otherwise the request timed out, and the client sends it again
                verifying.remove(asked)
                self._unsettled -= 1
                self._write_verified(partition, asked, records, header, code)

        adds = self._ctx.api_version >= ADDS_PARTITIONS_FROM_VERSION
        question = Question(self._transactional_id, *producer, partition.topic_partition, adds)
        ask = partial(self._ctx.broker.verifier.start, question)
        waiting.wait(*producer, header.base_sequence, ask, resume)

    @property
    def _verifies(self) -> bool:
        return self._ctx.api_version >= ADDS_PARTITIONS_FROM_VERSION or (
            self._ctx.broker.settings.bool("transaction.partition.verification.enable")
        )

    def _write_verified(
        self,
        partition: Partition,
        asked: ProducePartition,
        records: ByteRange,
        header: BatchHeader,
        code: ErrorCode,
    ) -> None:
        """The coordinator has answered, or the verification has failed without its answer."""
        version = self._ctx.api_version
        try:
            if code is not ErrorCode.none:
                sent = for_client(
                    code,
                    knows_abortable=version >= ABORTABLE_FROM_VERSION,
                    knows_concurrent=version >= ADDS_PARTITIONS_FROM_VERSION,
                )
                raise KafkaError(sent, f"the transaction coordinator answered {code.name}")
            _check_order(partition, header)
            self._write(partition, asked, records, self._partitions.append_time_ms())
            partition.verifications.begun(header.producer_id)
            if self._acks != 0:
                return  # acknowledged() follows
        except KafkaError as error:
            self._refuse(partition, asked, error)
        self._answer_if_settled()

    def _refuse(
        self, partition: Partition | None, asked: ProducePartition, error: KafkaError
    ) -> None:
        records, asked.records = asked.records, None
        self._failed = True
        asked.error_code = error.code
        asked.error_message = error.message
        if partition is None:
            return
        metrics = self._ctx.broker.metrics.topic(partition.topic_partition.topic)
        metrics.total_produce_requests += 1
        metrics.failed_produce_requests += 1
        metrics.bytes_rejected += 0 if records is None else len(records)
        if error.code in BAD_RECORDS and records is not None and _is_one_batch(records):
            asked.log_start_offset = partition.log.log_start_offset
            if isinstance(error, RecordsRejectedError):
                asked.record_errors = error.record_errors

    def acknowledged(self, index: int, error: ErrorCode) -> None:
        """Called by the partition when the `index`-th append is written or committed."""
        asked = self._appended[index]
        if self.finished or asked is None:
            return  # it timed out before, and the client has its response
        if error:
            self._fail_append(asked, error)
        self._appended[index] = None
        self._unsettled -= 1
        self._answer_if_settled()

    def _answer_if_settled(self) -> None:
        if not self._unsettled and not self._starting:
            if self._acks == ACKS_ALL:
                self._partitions.produce_waiting.finish(self)
            self._answer()

    def on_expired(self) -> None:
        """acks=all took longer than the request's timeout: written, but not yet committed."""
        for asked in (*self._appended, *(self._verifying or ())):
            if asked is not None:
                self._fail_append(asked, ErrorCode.request_timed_out)
        self._answer()

    def _fail_append(self, asked: ProducePartition, error: ErrorCode) -> None:
        self._failed = True
        asked.error_code = error
        asked.base_offset = asked.log_append_time_ms = asked.log_start_offset = -1

    def _answer(self) -> None:
        ctx = self._ctx
        throttle_ms = 0
        if ctx.broker.quotas.limited:
            throttle_ms = throttle_produce(ctx, answered=self._acks != 0)
        if self._acks == 0:
            if self._failed:
                ctx.disconnect("an error in a produce request with acks=0")
            ctx.respond([], 0)
            return
        nodes: Sequence[NodeEndpoint] = self._add_leader_hints() if self._failed else ()
        response = encode_produce_response(
            ctx.api_version, ctx.correlation_id, self._topics, throttle_ms, node_endpoints=nodes
        )
        ctx.respond([response], len(response))

    def _add_leader_hints(self) -> list[NodeEndpoint]:
        """Name the leaders of partitions that this broker does not lead, and their endpoints."""
        misled = [
            (topic.name if topic.name is not None else topic.topic_id or b"", asked)
            for topic in self._topics
            for asked in topic.partitions
            if asked.error_code in LEADER_ERRORS
        ]
        if misled and self._partitions.isolation.leads_isolated:
            self._ctx.disconnect("this broker is isolated from the controller: ask another one")
        for name, asked in misled:
            asked.current_leader = current_leader(self._ctx, name, asked.index)
        return endpoints(self._ctx, [asked.current_leader for _, asked in misled])


def _is_one_batch(records: ByteRange) -> bool:
    """Kafka refuses anything else before it looks at the log."""
    size = len(records)
    if size < HEADER_BYTES:
        return False
    header = read_header(records.data, records.start)
    return header.magic == 2 and header.size == size


def _check_order(partition: Partition, header: BatchHeader) -> None:
    """A batch that waited before this one and was refused has to be sent again first."""
    floor = partition.verifications.floor(header.producer_id, header.producer_epoch)
    known = header.producer_id in partition.log.producers.entries
    if floor is not None and not known and header.base_sequence > floor:
        raise KafkaError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id}: sequence {header.base_sequence} before {floor}",
        )
