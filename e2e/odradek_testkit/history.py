"""Records that a workload wrote and read, for the checker.

Every record carries an id that is used once; ids grow in the order of sending. A write starts as
"info" (it may or may not be in the log: a timeout, a dead client), and becomes "ok" when the
broker acknowledged it with an offset. There is no state "fail": a client cannot know that.

    history = History()
    number = history.send(producer=0, partition=2)          # id 1, state "info"
    history.ack(number, offset=17)                          # state "ok"
    history.read("final", partition=2, offset=17, number=number)

Reads are kept in the order in which each reader received them. The reader named FINAL reads every
partition from its beginning to its end after all faults have ended. load.py writes a history,
checker.py checks it, and a failed test saves it as JSON lines.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

FINAL = "final"


@dataclass(slots=True)
class Write:
    """A record that was sent, and its fate as far as it is known."""

    number: int
    producer: int
    partition: int
    sent_at_s: float
    state: Literal["info", "ok"] = "info"
    offset: int = -1  # when "ok"; -1 when the answer had none (a retry that was already written)
    done_at_s: float = -1.0  # of the ack, or of the error that left it at "info"
    error: str = ""


class Read(NamedTuple):
    """A record that a reader received."""

    reader: str
    partition: int
    offset: int
    number: int


@dataclass
class History:
    """All writes and reads of a workload."""

    writes: dict[int, Write] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def send(self, producer: int, partition: int) -> int:
        """A new id, recorded before the record is handed to the client."""
        with self._lock:
            number = len(self.writes) + 1
            self.writes[number] = Write(number, producer, partition, time.monotonic())
        return number

    def ack(self, number: int, offset: int) -> None:
        write = self.writes[number]
        write.state, write.offset, write.done_at_s = "ok", offset, time.monotonic()

    def unknown(self, number: int, error: str) -> None:
        """The client gave up; the record may be in the log nevertheless."""
        write = self.writes[number]
        write.error, write.done_at_s = error, time.monotonic()

    def read(self, reader: str, partition: int, offset: int, number: int) -> None:
        self.reads.append(Read(reader, partition, offset, number))

    def acked(self) -> Iterator[Write]:
        return (write for write in tuple(self.writes.values()) if write.state == "ok")

    def acked_count(self) -> int:
        return sum(1 for _ in self.acked())

    def errors(self) -> list[Write]:
        return [write for write in self.writes.values() if write.error]

    def save(self, path: Path) -> None:
        with open(path, "w") as out:
            for write in self.writes.values():
                out.write(json.dumps({"write": asdict(write)}) + "\n")
            for read in self.reads:
                out.write(json.dumps({"read": read._asdict()}) + "\n")
