"""The scenarios. The abuse of each is a context manager.

`SCENARIOS` is what `make abuse` runs and docs/reliability.md shows, in this order.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from odradek_bench.abuse.world import World
from odradek_bench.engines import Servers, many, one, running
from odradek_bench.raw import METADATA, PRODUCE, frame, string
from odradek_testkit.small_disk import SmallDisk

MB = 1 << 20
SILENT_MB = (100, 50, 25, 12, 6, 3, 1)  # the first is socket.request.max.bytes of both engines
ALL_TOPICS = frame(METADATA, 1, (-1).to_bytes(4, "big", signed=True))
DESCRIPTORS = 600  # a JVM with its jars needs 200 of them
SMALL_DISK_MB, GROWN_DISK_MB = 128, 1024
DRIP_SECONDS = 0.5


@dataclass(frozen=True)
class Scenario:
    """One kind of abuse, and the servers that it needs."""

    name: str
    title: str
    abuse: Callable[[World], AbstractContextManager[None]]
    servers: Callable[[str, Path], AbstractContextManager[Servers]]
    seconds: float = 10.0


# -- brokers ---------------------------------------------------------------------------------------


@contextmanager
def one_broker(engine: str, directory: Path) -> Iterator[Servers]:
    with running(one(engine, directory / f"{engine}-one")) as servers:
        yield servers


@contextmanager
def few_descriptors(engine: str, directory: Path) -> Iterator[Servers]:
    servers = one(engine, directory / f"{engine}-one")
    servers.only.wrapper = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"]
    with running(servers):
        yield servers


@contextmanager
def one_small_disk(engine: str, directory: Path) -> Iterator[Servers]:
    """Three brokers; the first has a small disk."""
    servers = many(engine, directory, 3)
    with SmallDisk(servers.members[0].data_dir, SMALL_DISK_MB), running(servers):
        yield servers


@contextmanager
def one_small_directory(engine: str, directory: Path) -> Iterator[Servers]:
    """Three brokers with two directories each; the first broker's second directory is small."""
    servers = many(engine, directory, 3)
    for member in servers.members:
        second = _second(member.data_dir)
        second.mkdir(parents=True)
        member.settings["log.dirs"] = f"{member.data_dir},{second}"
    with SmallDisk(_second(servers.members[0].data_dir), SMALL_DISK_MB), running(servers):
        yield servers


def _second(data_dir: Path) -> Path:
    return data_dir.with_name("data-2")


# -- abuse over the network ------------------------------------------------------------------------


@contextmanager
def silent_prefixes(world: World) -> Iterator[None]:
    """Connections that announce a request and send nothing of it, in decreasing sizes: smaller
    ones may claim the rest of a memory budget after the large ones."""
    with _connections(world, 12 * len(SILENT_MB)) as sockets:
        for at, sock in enumerate(sockets):
            sock.sendall((SILENT_MB[at // 12] * MB).to_bytes(4, "big"))
        yield


@contextmanager
def dripping_senders(world: World) -> Iterator[None]:
    """Fifty connections announce 50 MB, send 8 MB of it, and then a byte now and then."""
    over = threading.Event()
    body = frame(PRODUCE, 7, b"\xff\xff" + b"\xff\xff" + b"\0\0\0\1" + string(b"x"))[4:]
    announced = (50 * MB).to_bytes(4, "big") + body + bytes(8 * MB - len(body))

    def send(sock: socket.socket) -> None:
        with suppress(OSError):  # the broker may have closed the connection
            sock.sendall(announced)
            while not over.wait(DRIP_SECONDS):
                sock.sendall(b"\0")

    with _connections(world, 50) as sockets:
        threads = [threading.Thread(target=send, args=(sock,), daemon=True) for sock in sockets]
        for thread in threads:
            thread.start()
        yield
        over.set()
        for sock in sockets:
            sock.close()


@contextmanager
def idle_connections(world: World) -> Iterator[None]:
    """More connections than the broker has descriptors for; none of them sends a byte."""
    with _connections(world, 2 * DESCRIPTORS):
        yield


@contextmanager
def unread_metadata(world: World) -> Iterator[None]:
    """100 connections ask 200 times each for all topics, and read no answer."""
    world.create_topics("many", topics=30, partitions=100)
    with _connections(world, 100) as sockets:
        for sock in sockets:
            sock.setblocking(False)
            with suppress(BlockingIOError):
                sock.send(ALL_TOPICS * 200)
        yield


@contextmanager
def read_metadata(world: World) -> Iterator[None]:
    """20 connections ask for all topics, read the answer and ask again."""
    world.create_topics("many", topics=30, partitions=100)
    over = threading.Event()

    def ask(sock: socket.socket) -> None:
        with suppress(OSError):
            while not over.is_set():
                sock.sendall(ALL_TOPICS)
                left = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
                while left:
                    left -= len(sock.recv(min(left, 1 << 16)))

    with _connections(world, 20) as sockets:
        threads = [threading.Thread(target=ask, args=(sock,), daemon=True) for sock in sockets]
        for thread in threads:
            thread.start()
        yield
        over.set()
        for thread in threads:
            thread.join()


@contextmanager
def large_create_topics(world: World) -> Iterator[None]:
    """One CreateTopics of 9,000 partitions; Apache Kafka accepts no 10,000."""

    def create() -> None:
        try:
            seconds = world.create_at_once("large", topics=90, partitions=100)
            world.notes.append(f"created in {seconds:.1f} s")
        except KafkaException as error:
            world.notes.append(f"CreateTopics failed: {error.args[0].name()}")

    thread = threading.Thread(target=create)
    thread.start()
    yield
    thread.join()


@contextmanager
def _connections(world: World, count: int) -> Iterator[list[socket.socket]]:
    """Up to `count` connections to the first broker; as many as it accepts."""
    host, _, port = world.servers.members[0].bootstrap.rpartition(":")
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            try:
                sock = socket.create_connection((host, int(port)), timeout=5)
            except OSError:
                break
            sockets.append(stack.enter_context(sock))
        yield sockets


# -- disks -----------------------------------------------------------------------------------------


@contextmanager
def disk_fills_up(world: World) -> Iterator[None]:
    """A producer fills the small disk of the first broker; later the disk is enlarged."""
    filler = world.admin()
    for future in filler.create_topics([NewTopic("filler", 3, 3)]).values():
        future.result(30)
    over = threading.Event()

    def fill() -> None:
        producer = Producer(
            {"bootstrap.servers": world.bootstrap, "acks": "all", "log_level": 0,
             "delivery.timeout.ms": 5000, "queue.buffering.max.messages": 100}, logger=None
        )  # fmt: skip
        written = 0
        while not over.is_set() and written < 2 * SMALL_DISK_MB * MB:
            with suppress(BufferError):
                producer.produce("filler", bytes(500_000))
                written += 500_000
            producer.poll(0.01)

    thread = threading.Thread(target=fill)
    thread.start()
    yield
    over.set()
    thread.join()
    SmallDisk(world.servers.members[0].data_dir, SMALL_DISK_MB).resize(GROWN_DISK_MB)


@contextmanager
def directory_fills_up(world: World) -> Iterator[None]:
    """Another program fills one of two directories; later its file is removed."""
    disk = SmallDisk(_second(world.servers.members[0].data_dir), SMALL_DISK_MB)
    disk.fill()
    yield
    disk.make_room()


SCENARIOS = [
    Scenario("silent-prefixes", "84 connections announce 100 to 1 MB and send nothing",
             silent_prefixes, one_broker),
    Scenario("dripping-senders", "50 connections send 8 of 50 MB, then a byte at a time",
             dripping_senders, one_broker),
    Scenario("idle-connections", f"{2 * DESCRIPTORS} idle connections, ulimit -n {DESCRIPTORS}",
             idle_connections, few_descriptors, seconds=20),
    Scenario("unread-metadata", "100 connections ask 200 times for 3,000 partitions, unread",
             unread_metadata, one_broker),
    Scenario("read-metadata", "20 connections read the metadata of 3,000 partitions in a loop",
             read_metadata, one_broker),
    Scenario("large-create", "one CreateTopics of 9,000 partitions",
             large_create_topics, one_broker, seconds=20),
    Scenario("full-disk", "three brokers, the disk of one fills up",
             disk_fills_up, one_small_disk, seconds=30),
    Scenario("full-directory", "three brokers, one of two directories of one has no room",
             directory_fills_up, one_small_directory, seconds=30),
]  # fmt: skip
