"""Reads of one partition for Fetch (1), common to followers and consumers.

Called by `fetch_follower.py` and `fetch_consumer.py`. Records stay ranges of segment files.
"""

from collections.abc import Iterable

from odradek_broker.log.types import FileRange
from odradek_broker.partition.partition import Partition
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import Offset
from odradek_protocol.messages.fetch import (
    FetchPartition,
    FetchPartitionResult,
    Records,
    TopicResult,
)


class Budget:
    """How many bytes of records a response may still hold, and how many it has."""

    __slots__ = ("left_bytes", "used_bytes")

    def __init__(self, max_bytes: int, used_bytes: int) -> None:
        self.left_bytes = max_bytes - used_bytes
        self.used_bytes = used_bytes

    def spend(self, length: int) -> None:
        self.left_bytes -= length
        self.used_bytes += length


def length_of(records: Records | None) -> int:
    """The length in bytes of records in memory or in a file."""
    if records is None:
        return 0
    return len(records) if isinstance(records, bytes) else records.length


def read_records(
    partition: Partition, asked: FetchPartition, budget: Budget, end: int
) -> tuple[FileRange | None, Offset]:
    """The records before offset `end`, and the offset of the first of them.

    The first batch of a response may exceed its limits, so that a consumer always makes progress.
    """
    is_first = budget.used_bytes == 0
    if budget.left_bytes <= 0 and not is_first:
        return None, -1
    limit = min(asked.partition_max_bytes, budget.left_bytes)
    return partition.log.read(asked.fetch_offset, limit, end, min_one_batch=is_first)


def divergence(partition: Partition, asked: FetchPartition) -> tuple[int, int] | None:
    """The epoch and offset where the reader's log diverges from ours, if it does (KIP-320, 595)."""
    epoch_asked = asked.last_fetched_epoch
    if epoch_asked < 0:
        return None
    epoch, end_offset = partition.log.end_offset_for_epoch(epoch_asked)
    # The log has no epoch that old, or no record that old.
    if epoch < 0 or asked.fetch_offset < partition.log.log_start_offset:
        raise KafkaError(ErrorCode.offset_out_of_range)
    if epoch < epoch_asked or end_offset < asked.fetch_offset:
        return epoch, end_offset
    return None


def partition_result(
    partition: Partition,
    asked: FetchPartition,
    records: FileRange | None,
    diverging: tuple[int, int] | None,
    aborted: list[tuple[int, int]] | None = None,
) -> FetchPartitionResult:
    return FetchPartitionResult(
        asked.partition,
        0,
        partition.high_watermark,
        partition.last_fetchable_offset(read_committed=True),
        partition.log.log_start_offset,
        aborted,
        -1,
        records if records is not None else b"",
        diverging,
    )


def by_topic(
    results: Iterable[tuple[tuple[str | bytes, int], FetchPartitionResult]],
) -> list[TopicResult]:
    """The results, keyed by topic name or id and partition, as a response groups them."""
    topics: list[TopicResult] = []
    last_topic: str | bytes | None = None
    partitions: list[FetchPartitionResult] = []
    for (topic, _), result in results:
        if topic != last_topic:
            partitions = []
            name, topic_id = (topic, None) if isinstance(topic, str) else (None, topic)
            topics.append((name, topic_id, partitions))
            last_topic = topic
        partitions.append(result)
    return topics
