"""Load over plain sockets, encoded once (raw.py): the broker's limits with a cheap client.

Bulk with requests in flight, many connections with one small request each, and batches on a
schedule for latencies. Every answer is checked: error codes, offsets, the CRC of fetched batches.
"""

from __future__ import annotations

import select
import ssl
import struct
import time
from dataclasses import dataclass, field

from odradek_bench import raw
from odradek_bench.endpoints import decrypted
from odradek_bench.usage import Meter
from odradek_bench.verify import StalledError, WrongAnswerError

STALL_S = 60.0  # a case without progress for this long has failed
PIPELINE = 5  # requests in flight of one raw producer, as the Java client's default
FETCH_BYTES_MAX = 1 << 20  # of a raw fetch: the consumer's default max.partition.fetch.bytes


def produce_pipelined(
    address: str, topic: str, records: bytes, requests: int, *, acks: int = 1, partition: int = 0
) -> int:
    """Sends the same batch repeatedly, five requests in flight; the sum of the base offsets."""
    request = raw.produce_request(topic, partition, records, acks)
    answer, offsets, sent = raw.ProduceAnswer(topic), 0, 0
    with raw.Connection(address) as connection:
        for done in range(requests):
            while sent < min(requests, done + PIPELINE):
                connection.send(request)
                sent += 1
            offsets += answer.base_offset(connection.receive())
    return offsets


def fetch_all(address: str, topic: str, end_offset: int, *, partition: int = 0) -> int:
    """Reads offsets 0 … end_offset - 1 and checks each batch's CRC and place; the bytes read."""
    offset, total = 0, 0
    with raw.Connection(address) as connection:
        while offset < end_offset:
            request = raw.fetch_request(topic, partition, offset, max_bytes=FETCH_BYTES_MAX)
            found = raw.fetched(connection.ask(request), topic)
            before = offset
            for batch in raw.batches(found.records):
                if batch.base_offset != offset or batch.size != batch.last_offset + 1 - offset:
                    raise WrongAnswerError(f"{topic}: offset {batch.base_offset}, not {offset}")
                offset = batch.last_offset + 1
                total += len(batch.view)
            if offset == before:
                raise WrongAnswerError(f"{topic}: nothing to read at offset {offset}")
    return total


def single_records(address: str, topic: str, partitions: int, value: bytes, *, connections: int,
                   requests: int, meter: Meter) -> dict[int, tuple[int, int]]:  # fmt: skip
    """One request with one record per connection at any time, `requests` in all.

    Returns per partition how many were acknowledged and the sum of their offsets. The meter runs
    from when all connections are open.
    """
    record = raw.batch([value])
    answer = raw.ProduceAnswer(topic)
    per_connection = requests // connections
    poll = select.epoll()
    askers: dict[int, _Asker] = {}
    seen = dict.fromkeys(range(partitions), (0, 0))
    try:
        for index in range(connections):
            partition = index % partitions
            request = raw.produce_request(topic, partition, record)
            connection = raw.greeted(address)
            connection.socket.setblocking(False)
            askers[connection.socket.fileno()] = _Asker(connection, request, partition)
            poll.register(connection.socket, select.EPOLLIN)
        with meter:
            _ask_all(poll, askers, answer, per_connection)
        for asker in askers.values():
            count, offsets = seen[asker.partition]
            seen[asker.partition] = (count + asker.answered, offsets + asker.offsets)
    finally:
        poll.close()
        for asker in askers.values():
            asker.connection.socket.close()
    return seen


def _ask_all(
    poll: select.epoll, askers: dict[int, _Asker], answer: raw.ProduceAnswer, per_connection: int
) -> None:
    length = answer.length + 4
    for asker in askers.values():
        asker.send(asker.request)
    running = len(askers)
    while running:
        ready = poll.poll(STALL_S)
        if not ready:
            raise StalledError(f"no answer in {STALL_S:.0f} s")
        for fd, _ in ready:
            asker = askers[fd]
            try:
                data = asker.recv(4096)
            except ssl.SSLWantReadError:  # a part of a TLS record
                continue
            if len(data) != length:
                data = asker.joined(data, length)
                if not data:
                    continue
            asker.offsets += answer.base_offset(data, 4)
            asker.answered += 1
            if asker.answered < per_connection:
                asker.send(asker.request)
            else:
                running -= 1


class _Asker:
    """One connection with as little work as possible: client and broker share the cores."""

    __slots__ = (
        "_part", "answered", "connection", "offsets", "partition", "recv", "request", "send",
    )  # fmt: skip

    def __init__(self, connection: raw.Connection, request: bytes, partition: int) -> None:
        self.connection = connection
        self.recv = connection.socket.recv
        self.send = connection.socket.send
        self.request = request
        self.partition = partition
        self.answered = 0
        self.offsets = 0
        self._part = b""

    def joined(self, data: bytes, length: int) -> bytes:
        """An answer that arrived in pieces; empty while a piece is missing."""
        if not data:
            raise WrongAnswerError("the broker closed a connection")
        data, self._part = self._part + data, b""
        if len(data) < length:
            data, self._part = b"", data
        return data


@dataclass
class Latencies:
    """Milliseconds from when a batch was due until its ack, and until a consumer received it."""

    ack_ms: list[float] = field(default_factory=list)
    end_to_end_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Schedule:
    """When batches are due: `per_s` of them for `seconds`.

    A process that sleeps until a batch is due wakes up late, by 0.1 ms on a virtual machine. With
    `early_s` it wakes up that much earlier and spins for the rest.
    """

    per_s: float
    seconds: float
    early_s: float = 0.0

    @property
    def count(self) -> int:
        return max(1, int(self.per_s * self.seconds))

    def since_due_ms(self, began: float, index: int) -> float:
        return (time.perf_counter() - began - index / self.per_s) * 1000


def paced(
    address: str, topic: str, records: bytes, per_batch: int, schedule: Schedule, *, acks: int = 1
) -> Latencies:
    """Sends batches on schedule, whether or not the broker keeps up, and reads them at the tail.

    Time counts from when a batch was due, not from when it was sent: a broker that stalls is
    charged for every batch that it delayed (no coordinated omission).
    """
    count, batches_per_s = schedule.count, schedule.per_s
    request = raw.produce_request(topic, 0, records, acks)
    answer, result = raw.ProduceAnswer(topic), Latencies()
    with raw.greeted(address) as producer, raw.greeted(address) as consumer:
        consumer.send(raw.fetch_request(topic, 0, 0, max_bytes=FETCH_BYTES_MAX))
        began, sent, acked, read = time.perf_counter() + 0.05, 0, 0, 0
        give_up = began + schedule.seconds + STALL_S
        while read < count or acked < count:
            now = time.perf_counter()
            if sent < count and now >= began + sent / batches_per_s:
                producer.send(request)
                sent += 1
                continue
            wait_s = began + sent / batches_per_s - now if sent < count else 1.0
            wait_s = max(0.0, wait_s - schedule.early_s)
            sockets = [producer.socket, consumer.socket]
            ready = [one for one in sockets if decrypted(one)]
            ready = ready or select.select(sockets, [], [], wait_s)[0]
            if producer.socket in ready:
                if answer.base_offset(producer.receive(), 0) != acked * per_batch:
                    raise WrongAnswerError(f"{topic}: batch {acked} was acknowledged elsewhere")
                result.ack_ms.append(schedule.since_due_ms(began, acked))
                acked += 1
            if consumer.socket in ready:
                records_read = raw.fetched(consumer.receive(), topic).records
                for batch in raw.batches(records_read):
                    if batch.base_offset != read * per_batch or batch.size != per_batch:
                        raise WrongAnswerError(f"{topic}: read offset {batch.base_offset}")
                    result.end_to_end_ms.append(schedule.since_due_ms(began, read))
                    read += 1
                request_next = raw.fetch_request(
                    topic, 0, read * per_batch, max_bytes=FETCH_BYTES_MAX
                )
                consumer.send(request_next)
            if now > give_up:
                raise StalledError(f"{topic}: {read} of {count} batches arrived")
    return result


def first_ack_s(address: str, topic: str, began: float, deadline_s: float = 300.0) -> float:
    """Seconds since `began` until a record is acknowledged; tries every 5 ms."""
    request = raw.produce_request(topic, 0, raw.batch([b"ready?"]))
    answer = raw.ProduceAnswer(topic)
    while True:
        try:
            with raw.Connection(address) as connection:
                answer.base_offset(connection.ask(request))
            return time.perf_counter() - began
        except (OSError, WrongAnswerError, struct.error):
            if time.perf_counter() - began > deadline_s:
                raise
        time.sleep(0.005)


def metadata_ms(address: str, times: int) -> tuple[list[float], int]:
    """How long Metadata (v1, all topics) takes, several times, and the bytes of its answer."""
    request = raw.frame(raw.METADATA, 1, struct.pack(">i", -1))
    taken, size = [], 0
    with raw.Connection(address) as connection:
        for _ in range(times):
            began = time.perf_counter()
            size = len(connection.ask(request))
            taken.append((time.perf_counter() - began) * 1000)
    return taken, size
