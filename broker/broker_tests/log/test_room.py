"""The reserve of a log directory: which writers are refused at which free space."""

import pytest

from broker_tests.log.support import NOW_MS, batch, open_log
from broker_tests.sim.memory_disk import SimDisk
from odradek_broker.log.errors import NoRoomError
from odradek_broker.log.room import ALLOWANCE_BYTES, Room
from odradek_broker.runtime.disk import DiskUsage
from odradek_protocol.error_codes import ErrorCode, KafkaError

MB = 1_000_000
TOTAL = 10_000 * MB
RESERVE = 64 * MB


class FileSystem:
    def __init__(self, free: int, total: int = TOTAL) -> None:
        self.free, self.total, self.looks = free, total, 0

    def usage(self, _: str) -> DiskUsage:
        self.looks += 1
        return DiskUsage(self.total, self.free)


def room_of(files: FileSystem, setting: int = RESERVE) -> Room:
    return Room("/data", files.usage, setting)


def test_with_much_space_the_file_system_is_looked_at_once_per_allowance() -> None:
    files = FileSystem(5_000 * MB)
    room = room_of(files)
    for _ in range(1000):
        room.admit(ALLOWANCE_BYTES // 100, True)
        files.free -= ALLOWANCE_BYTES // 100
    assert 10 <= files.looks <= 12
    assert not room.low


def test_a_request_larger_than_the_allowance() -> None:
    room = room_of(FileSystem(5_000 * MB))
    room.admit(100 * MB, True)


@pytest.mark.parametrize(
    ("free", "producers", "own"),
    [(RESERVE + 2 * MB, True, True), (RESERVE - 1, False, True), (RESERVE // 2 - 1, False, False)],
)
def test_which_writers_are_refused_at_which_free_space(
    free: int, producers: bool, own: bool
) -> None:
    for from_client, allowed in ((True, producers), (False, own)):
        room = room_of(FileSystem(free))
        if allowed:
            room.admit(MB, from_client)
        else:
            with pytest.raises(NoRoomError, match=r"odradek\.log\.dir\.reserve\.bytes"):
                room.admit(MB, from_client)
            assert room.refused == from_client


def test_queued_bytes_count_as_used() -> None:
    """Requests of one loop pass, none of which is in a file yet."""
    files = FileSystem(RESERVE + 10 * MB)
    room = room_of(files)
    for _ in range(3):
        room.admit(3 * MB, True)
        room.queued += 3 * MB
    with pytest.raises(NoRoomError):
        room.admit(3 * MB, True)


def test_the_level_does_not_flap() -> None:
    room = room_of(FileSystem(0))
    seen = []
    for free in (80, 63, 65, 79, 80, 70, 31, 40, 47, 48, 79, 81):
        room.update(DiskUsage(TOTAL, free * MB))
        seen.append("full" if room.full else "low" if room.low else "ok")
    assert seen == [
        *("ok", "low", "low", "low", "ok", "ok"),
        *("full", "full", "full", "low", "low", "ok"),
    ]


def test_a_batch_that_does_not_fit_makes_others_lead_until_it_does() -> None:
    files = FileSystem(RESERVE + 30 * MB)
    room = room_of(files)
    with pytest.raises(NoRoomError):
        room.admit(40 * MB, True)
    room.look()
    assert room.low
    files.free = RESERVE + 41 * MB
    room.admit(40 * MB, True)
    assert not room.low


def test_batches_pipelined_behind_a_refused_one_are_refused_too() -> None:
    """1. batch 0 is written and not answered yet; 2. batch 1 is refused; 3. batch 2 is on its way
    already. An answer "out of order" to it makes librdkafka take a new epoch and send batch 0
    again, which is then there twice."""
    files = FileSystem(5_000 * MB)
    log = open_log(SimDisk())
    log._state.room = room_of(files)

    def send(sequence: int) -> int:
        data = batch("x", producer=(7, 0, sequence))
        return log.append_as_leader(data, 0, NOW_MS).first_offset

    assert send(0) == 0
    log.write_pending()
    files.free = RESERVE - MB
    log._state.room.look()
    for sequence in (1, 2):
        with pytest.raises(NoRoomError):
            send(sequence)
    assert send(0) == 0, "what is written already is acknowledged"
    files.free = 5_000 * MB
    with pytest.raises(KafkaError) as refused:
        send(2)
    assert refused.value.code == ErrorCode.out_of_order_sequence_number
    assert (send(1), send(2)) == (1, 2)


def test_on_a_small_file_system_the_reserve_is_smaller() -> None:
    room = room_of(FileSystem(30 * MB, total=40 * MB))
    room.look()
    assert (room.reserve_bytes, room.floor_bytes) == (2 * MB, MB)


def test_without_a_reserve_nobody_looks() -> None:
    files = FileSystem(0)
    room = room_of(files, 0)
    room.admit(100 * MB, True)
    assert files.looks == 0
