"""Frames that come in several reads, over a real pair of sockets."""

import socket
import sys
from collections.abc import Iterator
from random import Random

import pytest

from odradek_broker.network.large_frame import FIRST_BUFFER_BYTES, LargeFrame, first_capacity

Pair = tuple[socket.socket, socket.socket]
PIECE_BYTES = 50_000  # fits into the buffers of a pair of sockets


@pytest.fixture
def pair() -> Iterator[Pair]:
    """(the client's socket, ours), which does not block."""
    client, ours = socket.socketpair()
    ours.setblocking(False)
    with client, ours:
        yield client, ours


def begun(size: int, head: bytes | bytearray) -> LargeFrame:
    return LargeFrame(size, memoryview(head), first_capacity(size, len(head)), 0.0)


def receive(frame: LargeFrame, ours: socket.socket) -> int:
    """Reads like a connection that gets all the memory that it requests."""
    if frame.full:
        frame.grow(frame.growth())
    return frame.receive(ours)


def received(pair: Pair, data: bytes, head_bytes: int, piece: int) -> bytes:
    """The frame of `data`, of which the first bytes were read before, the rest in pieces."""
    client, ours = pair
    frame = begun(len(data), data[:head_bytes])
    at = head_bytes
    while at < len(data):
        assert not frame.complete
        client.sendall(data[at : at + piece])
        wanted = min(at + piece, len(data))
        while at < wanted:  # a read may end where the buffer ends
            count = receive(frame, ours)
            assert count > 0
            at += count
            assert frame.filled == at
    assert frame.complete
    return frame.finish()


@pytest.mark.parametrize("head_bytes", [0, 1, 8, 299])
def test_byte_by_byte(pair: Pair, head_bytes: int) -> None:
    data = Random(head_bytes).randbytes(300)
    frame = received(pair, data, head_bytes, 1)
    assert type(frame) is bytes
    assert frame == data


@pytest.mark.parametrize(
    "size",
    [
        FIRST_BUFFER_BYTES - 1,
        FIRST_BUFFER_BYTES,
        FIRST_BUFFER_BYTES + 1,
        2 * FIRST_BUFFER_BYTES,
        2 * FIRST_BUFFER_BYTES + 1,
        5 * FIRST_BUFFER_BYTES + 77,
    ],
)
def test_in_pieces(pair: Pair, size: int) -> None:
    data = Random(size).randbytes(size)
    for head_bytes in (0, 1000):
        frame = received(pair, data, head_bytes, PIECE_BYTES)
        assert type(frame) is bytes
        assert frame == data


def test_the_last_bytes_of_a_large_frame_one_by_one(pair: Pair) -> None:
    """Around the place where the first buffer ends."""
    data = Random(1).randbytes(FIRST_BUFFER_BYTES + 20)
    assert received(pair, data, FIRST_BUFFER_BYTES - 20, 1) == data


def test_bytes_read_before_may_exceed_the_first_buffer(pair: Pair) -> None:
    """As from a larger scratch buffer."""
    data = Random(2).randbytes(3 * FIRST_BUFFER_BYTES)
    assert received(pair, data, 2 * FIRST_BUFFER_BYTES + 3, PIECE_BYTES) == data


def test_nothing_of_the_next_frame_is_read(pair: Pair) -> None:
    client, ours = pair
    frame = begun(5, b"ab")
    client.sendall(b"cdeNEXT")
    assert receive(frame, ours) == 3
    assert frame.complete
    assert frame.finish() == b"abcde"
    assert ours.recv(100) == b"NEXT"


def test_the_frame_survives_reuse_of_the_buffer_of_its_head(pair: Pair) -> None:
    """The head is in a buffer that all connections share."""
    client, ours = pair
    scratch = bytearray(b"head")
    frame = begun(8, scratch)
    scratch[:] = b"xxxx"
    client.sendall(b"tail")
    receive(frame, ours)
    assert frame.finish() == b"headtail"


def test_the_end_of_the_stream_reads_zero_bytes(pair: Pair) -> None:
    client, ours = pair
    frame = begun(10, b"ab")
    client.sendall(b"cd")
    client.shutdown(socket.SHUT_WR)
    assert receive(frame, ours) == 2
    assert receive(frame, ours) == 0
    assert not frame.complete
    assert frame.filled == 4


def test_an_empty_socket_raises_blocking_and_reading_continues(pair: Pair) -> None:
    client, ours = pair
    frame = begun(FIRST_BUFFER_BYTES + 2, bytes(FIRST_BUFFER_BYTES))
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            receive(frame, ours)
    client.sendall(b"yz")
    assert receive(frame, ours) == 2
    assert frame.finish() == bytes(FIRST_BUFFER_BYTES) + b"yz"


def held_bytes(frame: LargeFrame) -> int:
    return sys.getsizeof(frame._buffer)


def test_the_buffer_grows_only_with_the_bytes_that_arrive(pair: Pair) -> None:
    """A client that claims 100 MB and sends a little costs a little."""
    client, ours = pair
    frame = begun(100_000_000, b"x" * 100)
    assert held_bytes(frame) < 1.25 * FIRST_BUFFER_BYTES
    piece = bytes(PIECE_BYTES)
    while frame.filled < 4_000_000:
        client.sendall(piece)
        wanted = frame.filled + len(piece)
        while frame.filled < wanted:
            receive(frame, ours)
        assert frame.capacity <= max(4 * frame.filled, FIRST_BUFFER_BYTES)
        assert held_bytes(frame) < 1.25 * frame.capacity


def test_a_small_frame_has_a_small_buffer() -> None:
    assert held_bytes(begun(100, b"x")) < 1000


def test_the_frame_is_handed_out_without_a_copy(pair: Pair) -> None:
    """The buffer hands out the bytes object that it filled."""
    data = Random(3).randbytes(2 * FIRST_BUFFER_BYTES)
    client, ours = pair
    frame = begun(len(data), data[:-10])
    client.sendall(data[-10:])
    receive(frame, ours)
    first = frame.finish()
    assert first is frame.finish()
    assert first == data
