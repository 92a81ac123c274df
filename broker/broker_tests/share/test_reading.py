"""How much of a log a fetch of a share group reads, and that it finds the same batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_tests.log.support import NOW_MS, batch, commit, open_log
from broker_tests.share.test_share_partition import LIMITS, acknowledge, take
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.log import Log
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.share.reading import FIRST_READ_BYTES, READ_GROWTH, ReadBatches, read_batches
from odradek_broker.share.share_partition import SharePartition
from odradek_protocol.ids import Offset
from odradek_protocol.share_codes import AcknowledgeType

EVERYTHING = 50 * 1024 * 1024


def filled_log(count: int, value_bytes: int) -> Log:
    """One record in each batch."""
    log = open_log(SimDisk())
    for number in range(count):
        log.append_as_leader(batch(str(number % 10) * value_bytes), 0, NOW_MS)
    commit(log)
    return log


def read(log: Log, last: Offset, bytes_max: int = EVERYTHING) -> ReadBatches:
    """From offset 0 on, until there is a batch that ends with `last` or later."""
    found = read_some(log, last, bytes_max, whole=True)
    assert found is not None
    return found


def read_some(log: Log, last: Offset, bytes_max: int, *, whole: bool) -> ReadBatches | None:
    partition: Any = SimpleNamespace(
        log=log, last_fetchable_offset=lambda _committed: log.log_end_offset
    )
    return read_batches(
        partition, 0, bytes_max, lambda offset: offset >= last, read_committed=True, whole=whole
    )


def test_a_fetch_reads_a_little_more_than_it_needs() -> None:
    log = filled_log(400, 20_000)  # 8 MB
    few = read(log, 5)
    assert len(few.data) == FIRST_READ_BYTES
    more = read(log, 30)  # 600 KB
    assert len(more.data) == READ_GROWTH * FIRST_READ_BYTES
    assert more.batches[-1].last >= 30
    everything = read(log, 400)
    assert everything.batches[-1].last == 399
    for one in (few, more):
        count = len(one.batches)
        assert one.batches == everything.batches[:count]
        assert one.positions == everything.positions[: count + 1]
    assert len(read(log, 400, bytes_max=700_000).data) == 700_000


def test_a_batch_that_is_larger_than_the_first_step() -> None:
    log = filled_log(3, FIRST_READ_BYTES * 3)
    assert read(log, 0).batches[0].last == 0
    # One whole batch comes, however large, for the first partition of a response only.
    assert [one.last for one in read(log, 0, bytes_max=1000).batches] == [0]
    assert read_some(log, 0, 1000, whole=False) is None


def test_batches_of_an_aborted_transaction_over_several_steps() -> None:
    """The transaction begins in the first step, and ends in the last."""
    log = open_log(SimDisk())
    text = "x" * 50_000
    for number in range(100):
        data = batch(text, producer=(7, 0, number), transactional=True)
        log.append_as_leader(data, 0, NOW_MS)
        log.append_as_leader(batch(text), 0, NOW_MS)
    log.append_control(7, 0, EndTxnMarker(False, 1), 0, NOW_MS)
    log.append_as_leader(batch(text, producer=(7, 0, 100), transactional=True), 0, NOW_MS)
    log.append_control(7, 0, EndTxnMarker(True, 1), 0, NOW_MS)
    commit(log)
    found = read(log, log.log_end_offset)
    assert len(found.data) > READ_GROWTH * FIRST_READ_BYTES
    delivered = [one.delivered for one in found.batches]
    assert delivered == [False, True] * 100 + [False, True, False]


@pytest.mark.parametrize(
    ("count", "last", "enough"),
    [(10, 29, True), (11, 29, False), (10, 28, False), (12, 31, True), (0, 0, True)],
)
def test_offsets_that_can_be_acquired(count: int, last: int, enough: bool) -> None:
    """0–29 are in flight: 0–9 accepted, 10–19 locked, 20–29 released; later ones are new."""
    partition = SharePartition(0)
    take(partition, "a", 29)
    acknowledge(partition, "a", (0, 9, AcknowledgeType.ACCEPT), (20, 29, AcknowledgeType.RELEASE))
    before = partition.runs()
    assert partition.has_available(0, count, last) is enough
    assert partition.runs() == before
    assert LIMITS.locks_max > 30
