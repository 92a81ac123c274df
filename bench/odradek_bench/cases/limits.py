"""The limits of the machine: plain loops that move the same bytes without a protocol.

`limit-write`: one process sends 1 MB pieces over loopback, another writes them to a file.
`limit-read`: one process sends a file with sendfile, another receives it. No broker can do more
with one connection; the report compares both engines with these numbers.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from multiprocessing import get_context
from pathlib import Path

from odradek_bench.case import LIMIT, Bench, Case, Metric, Sample
from odradek_bench.usage import MB
from odradek_bench.verify import WrongAnswerError, payloads

PIECE = 1 << 20
ACCEPT_TIMEOUT_S = 30.0


def write(bench: Bench, engine: str) -> Sample:
    """socket -> file"""
    assert engine == LIMIT
    pieces = bench.size(full=400, smoke=20)
    path = bench.new_directory(engine)
    piece = payloads(bench.seed, PIECE, 1)[0]
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = get_context("fork").Process(target=_receive_to_file, args=(server, path))
        child.start()
        with socket.create_connection(server.getsockname()) as connection:
            began = time.perf_counter()
            for _ in range(pieces):
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)  # the other side closes when everything is in the file
            wall_s = time.perf_counter() - began
        child.join()
    _check_file(path, piece, pieces)
    path.unlink()
    return {"MB/s": pieces * PIECE / MB / wall_s}


def read(bench: Bench, engine: str) -> Sample:
    """file -> sendfile -> socket"""
    assert engine == LIMIT
    pieces = bench.size(full=400, smoke=20)
    path = bench.new_directory(engine)
    piece = payloads(bench.seed, PIECE, 1)[0]
    with open(path, "wb") as file:
        for _ in range(pieces):
            file.write(piece)
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = get_context("fork").Process(target=_send_file, args=(server, path))
        child.start()
        buffer, got = bytearray(PIECE), 0
        with socket.create_connection(server.getsockname()) as connection:
            began = time.perf_counter()
            while n := connection.recv_into(buffer):
                got += n
            wall_s = time.perf_counter() - began
        child.join()
    if got != pieces * PIECE:
        raise WrongAnswerError(f"sendfile loop: {got} bytes of {pieces * PIECE}")
    path.unlink()
    return {"MB/s": got / MB / wall_s}


def _receive_to_file(server: socket.socket, path: Path) -> None:
    server.settimeout(ACCEPT_TIMEOUT_S)
    connection, _ = server.accept()
    buffer = memoryview(bytearray(PIECE))
    with connection, open(path, "wb", buffering=0) as file:
        while n := connection.recv_into(buffer):
            file.write(buffer[:n])


def _send_file(server: socket.socket, path: Path) -> None:
    server.settimeout(ACCEPT_TIMEOUT_S)
    connection, _ = server.accept()
    with connection, open(path, "rb") as file:
        at, size = 0, path.stat().st_size
        while at < size:
            at += os.sendfile(connection.fileno(), file.fileno(), at, PIECE)


def _check_file(path: Path, piece: bytes, pieces: int) -> None:
    wanted, found = hashlib.blake2b(), hashlib.blake2b()
    with open(path, "rb") as file:
        for _ in range(pieces):
            wanted.update(piece)
            found.update(file.read(PIECE))
        if file.read(1) or wanted.digest() != found.digest():
            raise WrongAnswerError("socket to file loop: the file is not what was sent")


CASES = tuple(
    Case(name, title, run, (Metric("MB/s", "more"),), engines=(LIMIT,))
    for name, title, run in (
        ("limit-write", "limit: socket to file loop", write),
        ("limit-read", "limit: sendfile loop", read),
    )
)
