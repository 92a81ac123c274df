"""A KafkaShareConsumer in a JVM of its own, driven line by line (kafka-tools/share)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from odradek_testkit.connecting import HasAddress, settings_file
from odradek_testkit.engines import tool_command

POLL_MS = 60_000  # far more than a member needs to join


class Delivered(NamedTuple):
    partition: int
    offset: int
    value: str
    deliveries: int


class ShareMember:
    def __init__(self, broker: HasAddress, topic: str, group: str, **settings: str) -> None:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        given = {"bootstrap.servers": broker.bootstrap, "group.id": group, **names}
        words = [*(f"{n}={v}" for n, v in given.items()), *settings_file(broker)]
        command = tool_command("ShareMember", topic, *words)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the share consumer ended with {self.process.wait()}"
        return line.strip()

    def ask(self, command: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._line()

    def poll(self, count: int = 1, ms: int = POLL_MS) -> list[Delivered]:
        """The records of the first poll that returns any; none if no poll does in that time."""
        answer = self.ask(f"poll {count} {ms}")
        assert answer.startswith("records"), answer
        return _delivered(answer)

    def poll_once(self, ms: int) -> list[Delivered]:
        """As `poll`, but none if the client reports an error (a broker that is gone)."""
        return _delivered(self.ask(f"poll 1 {ms}"))

    def poll_all(self, count: int) -> list[Delivered]:
        """Polls until it has `count` records; the records of all but the last poll are accepted
        by the next one (implicit acknowledgement)."""
        found: list[Delivered] = []
        while len(found) < count:
            more = self.poll()
            assert more, f"only {len(found)} of {count} records"
            found += more
        return found

    def acknowledge(self, kind: str, *records: Delivered) -> None:
        for record in records:
            assert self.ask(f"{kind} {record.partition}-{record.offset}") == "noted"

    def commit(self) -> dict[int, str]:
        """Commits; returns "ok" or the class of the error by partition."""
        answer = self.ask("commit")
        assert answer.startswith("committed"), answer
        return _committed(answer)

    def commit_once(self) -> dict[int, str]:
        """As `commit`, but nothing is confirmed if the client reports an error."""
        return _committed(self.ask("commit"))

    def close(self) -> None:
        assert self.ask("close") == "closed"
        assert self.process.wait() == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _delivered(answer: str) -> list[Delivered]:
    return [
        Delivered(int(p), int(o), value, int(n))
        for p, o, value, n in re.findall(r" (\d+)-(\d+)=(\S*)\*(\d+)", answer)
    ]


def _committed(answer: str) -> dict[int, str]:
    return {int(p): result for p, result in re.findall(r" (\d+)=(\S+)", answer)}


@contextmanager
def share_member(
    broker: HasAddress, topic: str, group: str, **settings: str
) -> Iterator[ShareMember]:
    member = ShareMember(broker, topic, group, **settings)
    try:
        yield member
        if member.process.poll() is None:
            member.close()
    finally:
        with member.process:  # closes the pipes
            if member.process.poll() is None:
                member.kill()
