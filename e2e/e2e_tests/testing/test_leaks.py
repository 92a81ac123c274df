"""500 Kafkas, one after the other, leave no process, port, thread, descriptor or file behind."""

import socket
import threading

import psutil
import pytest

from odradek.testing import Kafka
from odradek_testkit.launching import close_launcher, launcher
from odradek_testkit.waiting import wait_until

FIXTURES = 500


@pytest.mark.long
def test_500_in_a_row_leave_nothing_behind() -> None:
    this = psutil.Process()
    _one()  # the launcher, and what is imported late
    threads = set(threading.enumerate())
    fds = this.num_fds()
    launcher_fds = psutil.Process(launcher().pid).num_fds()
    ports = [_one() for _ in range(FIXTURES)]

    assert [p.pid for p in this.children(recursive=True)] == [launcher().pid]
    wait_until(lambda: set(threading.enumerate()) <= threads, "the threads have ended")
    assert this.num_fds() <= fds
    assert psutil.Process(launcher().pid).num_fds() <= launcher_fds
    assert [path.name for path in launcher().directory.iterdir()] == ["launcher.out"]
    for port in set(ports):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))  # OSError if somebody still listens on it

    directory = launcher().directory
    close_launcher()
    assert this.children(recursive=True) == []
    assert not directory.exists()


def _one() -> int:
    with Kafka() as kafka:
        kafka.topics.create("orders", partitions=3)
        kafka.produce("orders", "a")
        assert kafka.read("orders") == ["a"]
        return int(kafka.bootstrap.rpartition(":")[2])
