"""The rules of compaction, one by one, on single batches."""

import pytest

from odradek_broker.log.cleaned_transactions import CleanedTransactions
from odradek_broker.log.cleaner import (
    BatchCleaner,
    CleanerStats,
    LastBatch,
    delete_horizon_of,
)
from odradek_broker.log.control import build_marker
from odradek_broker.log.offset_map import OffsetMap
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.log.txn_index import AbortedTxn
from odradek_protocol.records.record_batch import OFFSET, read_header
from odradek_protocol.records.records import (
    NO_PRODUCER,
    BatchProducer,
    Record,
    build_batch,
    read_records,
)

NOW_MS = 1_700_000_000_000
RETENTION_MS = 1000
CODECS = range(5)


class Rules:
    """A cleaner whose map has these keys, and the batches that it keeps."""

    def __init__(
        self,
        latest: dict[str, int],
        *,
        mapped: int | None = None,
        aborted: tuple[AbortedTxn, ...] = (),
        last_batches: dict[int, LastBatch] | None = None,
        end_offset: int = 1000,
        now_ms: int = NOW_MS,
    ) -> None:
        offset_map = OffsetMap(10_000, 0.9)
        offset_map.put([key.encode() for key in latest], list(latest.values()))
        offset_map.latest_offset = 999 if mapped is None else mapped
        self.stats = CleanerStats()
        self.transactions = CleanedTransactions(aborted, 0)
        self._cleaner = BatchCleaner(
            offset_map,
            self.transactions,
            last_batches or {},
            end_offset=end_offset,
            now_ms=now_ms,
            delete_retention_ms=RETENTION_MS,
            stats=self.stats,
        )

    def clean(self, batch: bytes) -> bytes | None:
        cleaned = self._cleaner.clean(read_header(batch), memoryview(batch))
        return None if cleaned is None else bytes(cleaned)


def records(
    base_offset: int,
    *pairs: tuple[str | None, str | None],
    codec: int = 0,
    producer: int = -1,
    transactional: bool = False,
    timestamps: tuple[int, ...] = (),
) -> bytes:
    """A batch of (key, value); None as value is a tombstone."""
    return build_batch(
        [
            Record(
                base_offset + number,
                timestamps[number] if timestamps else NOW_MS,
                None if key is None else key.encode(),
                None if value is None else value.encode(),
                [(b"h", b"%d" % number)],
            )
            for number, (key, value) in enumerate(pairs)
        ],
        codec=codec,
        producer=NO_PRODUCER if producer < 0 else BatchProducer(producer, 4, 7),
        leader_epoch=2,
        transactional=transactional,
    )


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    batch = bytearray(build_marker(producer, 4, EndTxnMarker(commit, 0), NOW_MS))
    OFFSET.pack_into(batch, 0, offset)
    return bytes(batch)


def offsets(batch: bytes | None) -> list[int]:
    return [] if batch is None else [record.offset for record in read_records(batch)]


def same_but_fewer(batch: bytes, cleaned: bytes, kept: list[int]) -> None:
    """Exactly these records are left, and nothing else about the batch changed."""
    before = {record.offset: record for record in read_records(batch)}
    assert list(read_records(cleaned)) == [before[offset] for offset in kept]
    old, new = read_header(batch), read_header(cleaned)
    changed = ("batch_length", "crc", "record_count", "max_timestamp")
    assert new.replace(**{name: getattr(old, name) for name in changed}) == old


# Records


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_is_removed_when_its_key_was_written_later(codec: int) -> None:
    batch = records(10, ("a", "1"), ("b", "2"), ("c", "3"), codec=codec, producer=5)
    cleaned = Rules({"a": 10, "b": 40, "c": 12}).clean(batch)
    assert cleaned is not None
    same_but_fewer(batch, cleaned, [10, 12])


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_keeps_everything_is_copied_as_it_is(codec: int) -> None:
    batch = records(10, ("a", "1"), ("b", "2"), codec=codec)
    assert Rules({"a": 10}).clean(batch) == batch  # b is not in the dirty part


def test_a_batch_without_retained_records_is_removed() -> None:
    rules = Rules({"a": 40})
    assert rules.clean(records(10, ("a", "1"), ("a", "2"))) is None
    assert rules.stats.records_read == 2
    assert rules.stats.records_written == 0


def test_within_a_batch_the_last_record_of_a_key_is_kept() -> None:
    batch = records(10, ("a", "1"), ("a", "2"), ("a", "3"))
    assert offsets(Rules({"a": 12}).clean(batch)) == [12]


def test_the_largest_timestamp_is_that_of_the_records_that_stay() -> None:
    batch = records(10, ("a", "1"), ("b", "2"), timestamps=(NOW_MS + 50, NOW_MS))
    cleaned = Rules({"a": 40, "b": 11}).clean(batch)
    assert cleaned is not None
    assert read_header(cleaned).max_timestamp == NOW_MS
    same_but_fewer(batch, cleaned, [11])


def test_records_without_a_key_are_removed_and_counted() -> None:
    """They were written before the topic was compacted."""
    rules = Rules({"a": 11})
    batch = records(10, (None, "x"), ("a", "1"), (None, "y"))
    assert offsets(rules.clean(batch)) == [11]
    assert rules.stats.records_without_key == 2


def test_records_past_the_end_of_the_offset_map_are_kept() -> None:
    """The map was full after offset 11: later records are for the next run, keyless too."""
    batch = records(10, ("a", "1"), ("b", "2"), ("a", None), (None, "x"))
    rules = Rules({"a": 10, "b": 11}, mapped=11)
    cleaned = rules.clean(batch)
    assert offsets(cleaned) == [10, 11, 12, 13]
    assert rules.stats.records_without_key == 0


# Tombstones


def test_a_tombstone_gets_a_delete_horizon_and_is_removed_after_it() -> None:
    batch = records(10, ("a", "1"), ("b", None), codec=2)
    first = Rules({"a": 10, "b": 11}).clean(batch)
    assert first is not None
    assert delete_horizon_of(read_header(first)) == NOW_MS + RETENTION_MS
    assert list(read_records(first)) == list(read_records(batch))
    assert read_header(first).max_timestamp == NOW_MS

    # Until then it stays unchanged over any number of runs,
    before = Rules({}, now_ms=NOW_MS + RETENTION_MS - 1)
    assert before.clean(first) == first
    # then it is removed, the rest is kept.
    after = Rules({}, now_ms=NOW_MS + RETENTION_MS).clean(first)
    assert offsets(after) == [10]


def test_a_tombstone_past_the_map_is_kept_even_after_its_horizon() -> None:
    """Values that it deletes may not have been removed yet."""
    first = Rules({}).clean(records(10, ("a", None), ("b", None)))
    assert first is not None
    rules = Rules({"a": 10}, mapped=10, now_ms=NOW_MS + 2 * RETENTION_MS)
    assert offsets(rules.clean(first)) == [11]


def test_a_tombstone_is_removed_when_its_key_was_written_again() -> None:
    assert Rules({"a": 40}).clean(records(10, ("a", None))) is None


def test_a_batch_keeps_its_horizon_when_it_loses_records() -> None:
    first = Rules({}).clean(records(10, ("a", None), ("b", None)))
    assert first is not None
    second = Rules({"a": 40}, now_ms=NOW_MS + 5).clean(first)
    assert second is not None
    assert delete_horizon_of(read_header(second)) == NOW_MS + RETENTION_MS
    assert [record.timestamp for record in read_records(second)] == [NOW_MS]


# Producers


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    batch = records(10, ("a", "1"), ("b", "2"), codec=1, producer=5)
    cleaned = Rules({"a": 40, "b": 41}, last_batches={5: LastBatch(11, 4)}).clean(batch)
    assert cleaned is not None
    assert len(cleaned) == 61
    old, new = read_header(batch), read_header(cleaned)
    assert new.record_count == 0
    for name in (
        "base_offset",
        "last_offset_delta",
        "partition_leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "max_timestamp",
    ):
        assert getattr(new, name) == getattr(old, name)


def test_an_empty_batch_is_removed_when_its_producer_wrote_again_or_expired() -> None:
    batch = records(10, ("a", "1"), producer=5)
    empty = Rules({"a": 40}, last_batches={5: LastBatch(10, 4)}).clean(batch)
    assert empty is not None
    assert Rules({}, last_batches={5: LastBatch(10, 4)}).clean(empty) == empty
    assert Rules({}, last_batches={5: LastBatch(50, 4)}).clean(empty) is None
    assert Rules({}).clean(empty) is None


def test_the_last_batch_of_the_cleaned_part_stays_for_its_offset() -> None:
    batch = records(10, ("a", "1"), ("a", "2"))
    cleaned = Rules({"a": 40}, end_offset=12).clean(batch)
    assert cleaned is not None
    header = read_header(cleaned)
    assert (header.record_count, header.base_offset, header.next_offset) == (0, 10, 12)


# Transactions

ABORTED = AbortedTxn(producer_id=5, first_offset=10, last_offset=20, last_stable_offset=21)


def test_aborted_records_are_removed_and_their_marker_much_later() -> None:
    """1. A run drops the records and keeps the marker, which it needs for its own readers.
    2. A run finds no records and gives the marker a delete horizon.
    3. A run after that drops the marker.
    """
    batch = records(10, ("a", "1"), producer=5, transactional=True)
    end = marker(20, 5, commit=False)

    first = Rules({}, aborted=(ABORTED,))
    assert first.clean(batch) is None
    assert first.clean(end) == end
    assert first.transactions.take_kept() == [ABORTED]

    second = Rules({})
    with_horizon = second.clean(end)
    assert with_horizon is not None
    assert delete_horizon_of(read_header(with_horizon)) == NOW_MS + RETENTION_MS
    assert second.transactions.take_kept() == []
    assert list(read_records(with_horizon)) == list(read_records(end))

    assert Rules({}, now_ms=NOW_MS + RETENTION_MS - 1).clean(with_horizon) == with_horizon
    assert Rules({}, now_ms=NOW_MS + RETENTION_MS).clean(with_horizon) is None


def test_a_commit_marker_stays_while_there_are_records() -> None:
    batch = records(10, ("a", "1"), producer=5, transactional=True)
    end = marker(20, 5, commit=True)
    rules = Rules({"a": 10})
    assert rules.clean(batch) == batch
    assert rules.clean(end) == end
    assert rules.clean(marker(30, 5, commit=True)) != end  # its records are gone: a horizon


def test_a_producer_may_abort_and_then_commit() -> None:
    rules = Rules({"a": 10, "b": 21}, aborted=(ABORTED,))
    assert rules.clean(records(10, ("a", "1"), producer=5, transactional=True)) is None
    end = marker(20, 5, commit=False)
    assert rules.clean(end) == end
    batch = records(21, ("b", "2"), producer=5, transactional=True)
    assert rules.clean(batch) == batch
    end = marker(22, 5, commit=True)
    assert rules.clean(end) == end


def test_aborted_transactions_that_ended_before_are_not_taken_for_new_ones() -> None:
    transactions = CleanedTransactions([ABORTED], 21)
    batch = records(30, ("a", "1"), producer=5, transactional=True)
    assert not transactions.read_data(read_header(batch))


def test_other_producers_records_between_aborted_ones_stay() -> None:
    rules = Rules({"a": 11}, aborted=(ABORTED,))
    batch = records(11, ("a", "1"), producer=6)
    assert rules.clean(records(10, ("b", "1"), producer=5, transactional=True)) is None
    assert rules.clean(batch) == batch


def test_the_last_marker_of_a_producer_without_records_stays_for_its_epoch() -> None:
    """The marker is all that is left of the producer, and fences its older instances."""
    rules = Rules({}, last_batches={5: LastBatch(-1, 4)}, now_ms=NOW_MS)
    with_horizon = rules.clean(marker(20, 5, commit=True))
    assert with_horizon is not None
    later = Rules({}, last_batches={5: LastBatch(-1, 4)}, now_ms=NOW_MS + RETENTION_MS)
    empty = later.clean(with_horizon)
    assert empty is not None
    header = read_header(empty)
    assert (header.record_count, header.producer_epoch, header.is_control) == (0, 4, True)
    assert Rules({}, last_batches={5: LastBatch(-1, 4)}).clean(empty) == empty
    assert Rules({}, last_batches={5: LastBatch(-1, 5)}).clean(empty) is None


def test_an_aborted_batch_that_carries_the_last_sequence_stays_empty() -> None:
    rules = Rules({}, aborted=(ABORTED,), last_batches={5: LastBatch(10, 4)})
    cleaned = rules.clean(records(10, ("a", "1"), producer=5, transactional=True))
    assert cleaned is not None
    assert read_header(cleaned).record_count == 0
    end = marker(20, 5, commit=False)
    assert rules.clean(end) == end
