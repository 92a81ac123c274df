"""Idempotent and transactional producers: Kafka's rules, snapshots, recovery, stable offset."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_tests.log.support import (
    NOW_MS,
    TOPIC_ID,
    TP,
    aborted_transactions,
    batch,
    commit,
    open_log,
    open_manager,
)
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.log import Log
from odradek_broker.log.producer_replay import RECALLED_HEADERS
from odradek_broker.log.producer_snapshot import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
)
from odradek_broker.log.producer_state import (
    SEQUENCE_MAX,
    EndTxnMarker,
    ProducerBatch,
    ProducerEntry,
    ProducerState,
    last_sequence_of,
)
from odradek_broker.log.types import AbortedTransaction, AppendInfo
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.error_codes import ErrorCode, KafkaError

SMALL_SEGMENTS = LogConfig(segment_bytes=600)
ABORT, COMMIT = EndTxnMarker(False, 0), EndTxnMarker(True, 0)


def offsets_of(info: AppendInfo) -> tuple[int, int]:
    return info.first_offset, info.last_offset


def send(log: Log, sequence: int, count: int = 1, epoch: int = 0, producer: int = 7) -> AppendInfo:
    values = [f"{producer}/{epoch}/{sequence + n}" for n in range(count)]
    info = log.append_as_leader(batch(*values, producer=(producer, epoch, sequence)), 0, NOW_MS)
    commit(log)
    return info


def refused(code: ErrorCode, log: Log, *args: int, **kwargs: int) -> None:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        send(log, *args, **kwargs)
    assert caught.value.code == code
    assert log.log_end_offset == end


def test_sequences_follow_each_other_without_a_gap() -> None:
    log = open_log(SimDisk())
    send(log, 0, 3)
    send(log, 3, 2)
    refused(ErrorCode.out_of_order_sequence_number, log, 6)
    send(log, 5)
    refused(ErrorCode.out_of_order_sequence_number, log, 9, 2)


def test_a_duplicate_of_the_last_five_is_answered_with_its_first_offsets() -> None:
    log = open_log(SimDisk())
    infos = [send(log, 2 * n, 2) for n in range(7)]
    for n in range(2, 7):
        again = send(log, 2 * n, 2)
        assert again.duplicate
        assert offsets_of(again) == offsets_of(infos[n])
    refused(ErrorCode.out_of_order_sequence_number, log, 2, 2)
    refused(ErrorCode.out_of_order_sequence_number, log, 12, 1)  # a part of a batch is no duplicate
    assert log.log_end_offset == 14


def test_a_duplicate_in_the_same_loop_pass_is_noticed() -> None:
    """The first copy is queued, not written yet."""
    log = open_log(SimDisk())
    first = log.append_as_leader(batch("a", producer=(7, 0, 0)), 0, NOW_MS)
    second = log.append_as_leader(batch("a", producer=(7, 0, 0)), 0, NOW_MS)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert log.log_end_offset == 1


def test_an_older_epoch_is_refused_a_newer_one_begins_with_sequence_0() -> None:
    log = open_log(SimDisk())
    send(log, 0, 2, epoch=3)
    refused(ErrorCode.invalid_producer_epoch, log, 2, epoch=2)
    refused(ErrorCode.out_of_order_sequence_number, log, 2, epoch=4)
    send(log, 0, epoch=4)
    refused(ErrorCode.invalid_producer_epoch, log, 2, epoch=3)


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    """As in Kafka: its records may have been deleted, or its state may have expired."""
    log = open_log(SimDisk())
    send(log, 41)
    send(log, 42)
    log.producers.expire(NOW_MS + 86_400_000, 86_400_000)
    assert not log.producers.entries
    send(log, 99)


def test_sequences_go_on_with_0_after_the_largest() -> None:
    assert last_sequence_of(SEQUENCE_MAX, 0) == SEQUENCE_MAX
    assert last_sequence_of(SEQUENCE_MAX - 1, 3) == 1
    assert ProducerBatch(1, 10, 3, 0).first_sequence == SEQUENCE_MAX - 1
    log = open_log(SimDisk())
    first = send(log, SEQUENCE_MAX - 1, 2)
    send(log, 0)
    again = send(log, SEQUENCE_MAX - 1, 2)
    assert offsets_of(again) == offsets_of(first)
    log = open_log(SimDisk())
    wrapped = send(log, SEQUENCE_MAX, 3)
    again = send(log, SEQUENCE_MAX, 3)
    assert offsets_of(again) == offsets_of(wrapped)
    assert (again.duplicate, again.log_append_time_ms) == (True, NOW_MS)
    send(log, 2)


def test_coordinators_write_without_sequence_numbers() -> None:
    log = open_log(SimDisk())
    for _ in range(3):
        data = batch("offsets", producer=(7, 1, -1), transactional=True)
        log.append_as_leader(data, 0, NOW_MS, from_client=False)
    data = batch("offsets", producer=(7, 0, -1), transactional=True)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(data, 0, NOW_MS, from_client=False)
    assert caught.value.code == ErrorCode.invalid_producer_epoch


def in_transaction(log: Log, producer: int, sequence: int, *values: str) -> int:
    data = batch(*values, producer=(producer, 0, sequence), transactional=True)
    return log.append_as_leader(data, 0, NOW_MS).first_offset


def test_open_transactions_hold_the_last_stable_offset_back() -> None:
    """
    1. Producers 1 (from 0 on) and 2 (from 2 on) write in transactions.
    2. 1 aborts: stable up to the first offset of 2, once the marker is committed.
    3. 2 commits: everything is stable, once that marker is committed too.
    """
    log = open_log(SimDisk())
    in_transaction(log, 1, 0, "a", "b")
    in_transaction(log, 2, 0, "c")
    commit(log)
    assert log.last_stable_offset == 0
    log.append_control(1, 0, ABORT, 0, NOW_MS)
    log.write_pending()
    assert log.high_watermark == 3
    assert log.last_stable_offset == 0  # the marker at 3 is not replicated yet
    log.high_watermark = 4
    assert log.last_stable_offset == 2
    log.append_control(2, 0, COMMIT, 0, NOW_MS)
    commit(log)
    assert log.last_stable_offset == 5
    assert aborted_transactions(log, 0, 5) == [AbortedTransaction(1, 0)]
    assert aborted_transactions(log, 4, 5) == []
    assert log.active.txn_index.read()[0].last_stable_offset == 2


def test_a_marker_of_an_old_epoch_or_coordinator_is_refused() -> None:
    log = open_log(SimDisk())
    in_transaction(log, 1, 0, "a")
    log.append_control(1, 2, EndTxnMarker(True, 5), 0, NOW_MS)
    for epoch, marker, code in (
        (1, EndTxnMarker(True, 5), ErrorCode.invalid_producer_epoch),
        (2, EndTxnMarker(True, 4), ErrorCode.transaction_coordinator_fenced),
    ):
        with pytest.raises(KafkaError) as caught:
            log.append_control(1, epoch, marker, 0, NOW_MS)
        assert caught.value.code == code


def test_a_marker_of_an_unknown_producer_needs_an_epoch_that_can_be() -> None:
    log = open_log(SimDisk())
    with pytest.raises(KafkaError) as caught:
        log.append_control(9, -2, EndTxnMarker(True, 0), 0, NOW_MS)
    assert caught.value.code is ErrorCode.invalid_producer_epoch
    assert log.log_end_offset == 0
    log.append_control(9, 0, EndTxnMarker(True, 0), 0, NOW_MS)
    assert log.log_end_offset == 1


def test_a_plain_batch_in_an_open_transaction_is_refused() -> None:
    log = open_log(SimDisk())
    in_transaction(log, 7, 0, "a")
    refused(ErrorCode.invalid_txn_state, log, 1)


def same_state(one: ProducerState, other: ProducerState) -> None:
    assert encode_snapshot(dict(sorted(one.entries.items()))) == encode_snapshot(
        dict(sorted(other.entries.items()))
    )
    # Snapshots have only the newest batch of each producer; the others are read from the log.
    for producer_id, entry in one.entries.items():
        assert entry.batches == other.entries[producer_id].batches, producer_id
    assert one.ongoing == other.ongoing


def restarted(disk: SimDisk, *, clean: bool = True) -> Log:
    disk._locks.clear()
    manager = open_manager(disk)
    manager.load(config_of=lambda _: SMALL_SEGMENTS)
    assert manager.clean_shutdown is clean
    return manager.logs[TP]


def test_all_requests_in_flight_are_duplicates_after_a_restart() -> None:
    """Five batches were written and never acknowledged; the client sends all of them again.

    There is a new segment about every six batches, and another producer's batches are between them.
    """
    for before in range(8):
        disk = SimDisk()
        manager = open_manager(disk)
        log = manager.get_or_create(TP, TOPIC_ID, SMALL_SEGMENTS)
        infos = []
        for n in range(before + 5):
            infos.append(send(log, 2 * n, 2))
            send(log, n, producer=8)
        manager.close()
        again = restarted(disk)
        assert len(again.segments) > 1
        for n in range(before, before + 5):
            repeated = send(again, 2 * n, 2)
            assert repeated.duplicate
            assert offsets_of(repeated) == offsets_of(infos[n])
        if before:
            refused(ErrorCode.out_of_order_sequence_number, again, 2 * before - 2, 2)


def test_older_batches_are_only_recalled_if_they_are_of_the_same_epoch_and_without_a_gap() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    log = manager.get_or_create(TP, TOPIC_ID, SMALL_SEGMENTS)
    send(log, 0)
    send(log, 0, epoch=1)
    send(log, 1, epoch=1)
    for sequence in (SEQUENCE_MAX, 0, 1):  # an unknown producer may begin anywhere
        send(log, sequence, producer=8)
    manager.close()
    entries = restarted(disk).producers.entries
    assert [(one.last_sequence, one.last_offset) for one in entries[7].batches] == [(0, 1), (1, 2)]
    assert [one.last_sequence for one in entries[8].batches] == [SEQUENCE_MAX, 0, 1]


def test_a_log_without_entries_in_its_offset_index_is_not_read_far_back() -> None:
    disk = SimDisk()
    manager = open_manager(disk)
    config = LogConfig(index_interval_bytes=1 << 30)
    log = manager.get_or_create(TP, TOPIC_ID, config)
    send(log, 0, producer=9)
    for n in range(RECALLED_HEADERS + 10):
        send(log, n)
    manager.close()
    disk._locks.clear()
    manager = open_manager(disk)
    manager.load(config_of=lambda _: config)
    batches = {pid: len(one.batches) for pid, one in manager.logs[TP].producers.entries.items()}
    assert batches == {7: 5, 9: 1}


def test_state_is_the_same_after_restart_crash_and_truncation() -> None:
    """Random producers and transactions; the state is rebuilt in three ways and compared."""
    rng = Random(20251116)
    for _ in range(20):
        disk = SimDisk()
        manager = open_manager(disk)
        log = manager.get_or_create(TP, TOPIC_ID, SMALL_SEGMENTS)
        sequences = dict.fromkeys(range(4), 0)
        states: list[tuple[int, bytes]] = []
        for _ in range(60):
            producer = rng.randrange(4)
            if producer >= 2 and sequences[producer] and rng.random() < 0.3:
                log.append_control(producer, 0, rng.choice((ABORT, COMMIT)), 0, NOW_MS)
            else:
                data = batch(
                    "x" * rng.randrange(40),
                    producer=(producer, 0, sequences[producer]),
                    transactional=producer >= 2,
                )
                log.append_as_leader(data, 0, NOW_MS)
                sequences[producer] += 1
            commit(log)
            if rng.random() < 0.1:
                states.append((log.log_end_offset, encode_snapshot(log.producers.entries)))
        aborted = aborted_transactions(log, 0, log.log_end_offset)
        disk._locks.clear()
        crashed = open_manager(disk)
        crashed.load(config_of=lambda _: SMALL_SEGMENTS)
        same_state(crashed.logs[TP].producers, log.producers)
        assert aborted_transactions(crashed.logs[TP], 0, log.log_end_offset) == aborted
        crashed.close()
        again = restarted(disk)
        same_state(again.producers, log.producers)
        assert aborted_transactions(again, 0, log.log_end_offset) == aborted
        for offset, snapshot in reversed(states):
            again.truncate_to(offset)
            assert sorted(decode_snapshot(snapshot)) == sorted(again.producers.entries)
            assert encode_snapshot(dict(sorted(again.producers.entries.items()))) == (
                encode_snapshot(dict(sorted(decode_snapshot(snapshot).items())))
            )


@given(
    st.dictionaries(
        st.integers(0, 2**63 - 1),
        st.tuples(
            st.integers(0, 2**15 - 1),
            st.integers(0, 2**31 - 1),
            st.integers(0, 1000),
            st.booleans(),
        ),
        max_size=5,
    )
)
def test_snapshots_come_back_as_they_were(
    producers: dict[int, tuple[int, int, int, bool]],
) -> None:
    entries = {}
    for producer_id, (epoch, sequence, delta, in_txn) in producers.items():
        entry = ProducerEntry(epoch)
        entry.last_timestamp = NOW_MS
        entry.batches.append(ProducerBatch(sequence, 5000, delta, NOW_MS))
        entry.txn_first_offset = 4000 if in_txn else -1
        entries[producer_id] = entry
    data = encode_snapshot(entries)
    assert encode_snapshot(decode_snapshot(data)) == data
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(damaged))
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(data[:at])
