"""A transactional producer whose single requests a test sends, also wrong and late ones.

Clients cannot send what the protocol allows: a request twice, after its transaction ended, or as
an instance that was fenced. `TxnProducer` speaks the newest versions (an epoch per transaction,
KIP-890) unless a test asks for older ones.
"""

from __future__ import annotations

from typing import Any

from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages import api
from odradek_protocol.messages.struct import Struct
from odradek_protocol.primitives import skip_tagged_fields
from odradek_protocol.records.records import BatchProducer, Record, build_batch
from odradek_testkit.raw_requests import RawConnection

__all__ = ["TxnProducer", "call"]

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 22, 24, 26
NOW_MS = 1_700_000_000_000


def call(connection: RawConnection, api_key: int, version: int, **fields: Any) -> Struct:
    frame = api.request_header(api_key, version, 1, "txn") + api.encode_request(
        api_key, version, Struct(**fields)
    )
    answer = connection.ask(frame)
    at = 4
    if len(api.response_header(api_key, version, 1)) > at:
        at = skip_tagged_fields(answer, at)
    return api.decode_response(api_key, version, answer, at)


class TxnProducer:
    def __init__(self, connection: RawConnection, transactional_id: str) -> None:
        self.connection = connection
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, *, timeout_ms: int = 60_000) -> ErrorCode:
        """May answer CONCURRENT_TRANSACTIONS: the caller retries."""
        answer = call(
            self.connection,
            INIT_PRODUCER_ID,
            5,
            transactional_id=self.transactional_id,
            transaction_timeout=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        return ErrorCode(answer.error_code)

    def add(self, topic: str, partition: int = 0) -> ErrorCode:
        """As clients before KIP-890 do."""
        answer = call(
            self.connection,
            ADD_PARTITIONS,
            3,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[Struct(name=topic, partitions=[partition])],
        )
        (topic_result,) = answer.results_by_topic_v3_and_below
        return ErrorCode(topic_result.results_by_partition[0].partition_error_code)

    def send(self, topic: str, value: str, *, partition: int = 0, version: int = 12) -> ErrorCode:
        sequence = self.sequences.get((topic, partition), 0)
        batch = build_batch(
            [Record(0, NOW_MS, None, value.encode())],
            producer=BatchProducer(self.producer_id, self.epoch, sequence),
            transactional=True,
        )
        answer = call(
            self.connection,
            PRODUCE,
            version,
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=10_000,
            topic_data=[
                Struct(name=topic, partition_data=[Struct(index=partition, records=bytes(batch))])
            ],
        )
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.none:
            self.sequences[topic, partition] = sequence + 1
        return code

    def end(self, *, commit: bool, version: int = 5) -> ErrorCode:
        """Uses the epoch of the answer from now on, if the answer has one."""
        answer = self.end_as(self.producer_id, self.epoch, commit=commit, version=version)
        if not answer.error_code and version >= 5:
            if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def end_as(self, producer_id: int, epoch: int, *, commit: bool, version: int = 5) -> Struct:
        return call(
            self.connection,
            END_TXN,
            version,
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
