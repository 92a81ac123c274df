"""DescribeLogDirs, asked of each broker at its own address: which directories, how much room.

    ask_log_dirs({0: ("127.0.0.1", 9092)}) -> {0: (LogDir("/data", False, 10**9, 10**8),)}

A fenced broker is in no metadata, and is the one whose disks matter. So each gets a connection of
its own, with a short time limit; one that does not answer is left out, and nobody else waits for
it. No topic is asked for: the answer is some hundred bytes, however many partitions there are.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest, DescribeLogDirsResponse

from odradek_operator.kafka.observed import LogDir

VERSION = 4  # the first with the sizes of file systems (Kafka 3.3)
TIMEOUT_S = 1.0  # of one broker
TOGETHER_S = 5.0  # of all: those that are left are asked the next time
ANSWER_BYTES_MAX = 1 << 20
KAFKA_STORAGE_ERROR = 56


def ask_log_dirs(addresses: Mapping[int, tuple[str, int]]) -> dict[int, tuple[LogDir, ...]]:
    """Broker → its directories; only of brokers that answered."""
    found: dict[int, tuple[LogDir, ...]] = {}
    give_up = time.monotonic() + TOGETHER_S
    for broker, address in sorted(addresses.items()):
        if time.monotonic() > give_up:
            break
        try:
            found[broker] = _ask(address)
        except (OSError, ValueError, IndexError, struct.error):
            continue  # nothing is known about it, and nothing is concluded
    return found


def _ask(address: tuple[str, int]) -> tuple[LogDir, ...]:
    request: Any = DescribeLogDirsRequest[VERSION](topics=[])
    request.with_header(correlation_id=0, client_id="odradek-operator")
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(request.encode(header=True, framed=True))
        (size,) = struct.unpack(">i", _read(connection, 4))
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of {size} bytes")
        data = _read(connection, size)
    answer: Any = DescribeLogDirsResponse[VERSION].decode(data, header=True)
    if answer.error_code != 0:
        raise ValueError(f"error {answer.error_code}")
    return tuple(
        LogDir(
            one.log_dir, one.error_code == KAFKA_STORAGE_ERROR, one.total_bytes, one.usable_bytes
        )
        for one in answer.results
    )


def _read(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("the broker closed the connection")
    return data
