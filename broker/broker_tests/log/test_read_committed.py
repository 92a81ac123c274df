"""Records that READ_COMMITTED readers get, compared with a model that knows every outcome.

The reader works as clients do: it fetches up to the last stable offset, gets with each answer the
aborted transactions that concern it, and leaves out the batches of those until their marker.
"""

from random import Random

import pytest

from broker_tests.log.support import NOW_MS, TOPIC_ID, TP, batch, batches_of, open_manager
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.control import parse_marker
from odradek_broker.log.log import Log
from odradek_broker.log.producer_state import EndTxnMarker
from odradek_broker.model.log_config import LogConfig
from odradek_protocol.records.record_batch import read_header
from odradek_protocol.records.records import read_records

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150)


def read_committed(log: Log, from_offset: int, rng: Random) -> list[tuple[int, str]]:
    """Offsets and values, with fetches of random sizes."""
    found: list[tuple[int, str]] = []
    position, end = from_offset, log.last_stable_offset
    while position < end:
        records, first = log.read(position, rng.randrange(100, 1500), end)
        if records is None:
            break
        aborted = sorted(log.aborted_in(records, first, position, end), key=lambda a: a[1])
        data = records.file.pread(records.length, records.position)  # type: ignore[attr-defined]
        skipping: set[int] = set()
        for one in batches_of(data):
            header = read_header(one)
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipping.add(aborted.pop(0).producer_id)
            position = header.next_offset
            if header.is_control:
                marker = parse_marker(one)
                assert marker is not None
                if not marker.commit:
                    skipping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipping):
                found += [
                    (record.offset, (record.value or b"").decode())
                    for record in read_records(one)
                    if record.offset >= from_offset
                ]
    return found


class Model:
    """All that was written, and how each transaction ended."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str, int | None]] = []  # offset, value, transaction
        self.outcomes: dict[int, bool] = {}
        self.first: dict[int, int] = {}

    def stable(self, high_watermark: int, markers: dict[int, int]) -> int:
        """The first offset of what is open, or whose marker is not replicated."""
        unstable = [
            first
            for number, first in self.first.items()
            if number not in self.outcomes or markers[number] >= high_watermark
        ]
        return min([high_watermark, *unstable])

    def committed(self, from_offset: int, end: int) -> list[tuple[int, str]]:
        return [
            (offset, value)
            for offset, value, number in self.records
            if from_offset <= offset < end and (number is None or self.outcomes.get(number))
        ]


@pytest.mark.parametrize("seed", range(25))
def test_only_committed_records_in_order(seed: int) -> None:
    """Also after a restart, after kill -9, and for a reader that begins anywhere."""
    rng = Random(seed)
    disk = SimDisk()
    log = open_manager(disk).get_or_create(TP, TOPIC_ID, CONFIG)
    model, markers = Model(), dict[int, int]()
    open_now: dict[int, int] = {}  # producer → transaction
    sequences: dict[int, int] = dict.fromkeys(range(4), 0)
    epochs: dict[int, int] = dict.fromkeys(range(4), 0)
    for step in range(200):
        producer = rng.randrange(5)
        if producer == 4:
            offset = log.append_as_leader(batch(f"plain-{step}"), 0, NOW_MS).first_offset
            model.records.append((offset, f"plain-{step}", None))
        elif producer in open_now and rng.random() < 0.3:
            number = open_now.pop(producer)
            model.outcomes[number] = commit = rng.random() < 0.5
            epochs[producer] += 1
            sequences[producer] = 0
            marker = EndTxnMarker(commit, 0)
            info = log.append_control(producer, epochs[producer], marker, 0, NOW_MS, 2)
            markers[number] = info.last_offset
        else:
            data = batch(
                f"{producer}-{step}",
                producer=(producer, epochs[producer], sequences[producer]),
                transactional=True,
            )
            sequences[producer] += 1
            offset = log.append_as_leader(data, 0, NOW_MS).first_offset
            number = open_now.setdefault(producer, offset)
            model.first.setdefault(number, offset)
            model.records.append((offset, f"{producer}-{step}", number))
        log.write_pending()
        if rng.random() < 0.7:
            log.high_watermark = rng.randrange(log.high_watermark, log.written_offset + 1)
        end = log.last_stable_offset
        assert end == model.stable(log.high_watermark, markers)
        if step % 20 == 19:
            start = rng.randrange(end + 1)
            assert read_committed(log, start, rng) == model.committed(start, end)
    log.high_watermark = log.written_offset
    disk._locks.clear()
    crashed = open_manager(disk)
    crashed.load(config_of=lambda _: CONFIG)
    again = crashed.logs[TP]
    again.high_watermark = again.written_offset
    assert again.last_stable_offset == log.last_stable_offset
    end = again.last_stable_offset
    assert read_committed(again, 0, rng) == model.committed(0, end)


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    """
    1. Transaction with epoch 0, ended by a marker with epoch 1; the producer goes on with 1.
    2. The marker comes again, from a coordinator that did not get the answer.
    """
    log = open_manager(SimDisk()).get_or_create(TP, TOPIC_ID, LogConfig())
    log.append_as_leader(batch("a", producer=(7, 0, 0), transactional=True), 0, NOW_MS)
    marker = EndTxnMarker(True, 0)
    assert not log.append_control(7, 1, marker, 0, NOW_MS, 2).duplicate
    assert log.append_control(7, 1, marker, 0, NOW_MS, 2).duplicate
    assert log.log_end_offset == 2
    log.append_as_leader(batch("b", producer=(7, 1, 0), transactional=True), 0, NOW_MS)
    with pytest.raises(Exception, match="epoch 1 after 1"):
        log.append_control(7, 1, marker, 0, NOW_MS, 2)
    assert log.producers.has_open_transaction(7, 1)
