"""The history of a round: requests and answers of clients, as JSON lines that checkers read later.

    directory/log.writer-0.jsonl        SUBJECT.WHO.jsonl: one file per process and subject
    {"e": "acked", "w": 0, "p": 2, "s": 100, "n": 50, "o": 700, "t": 12.5}

A line is written when the event has happened, so a crash of the process loses nothing that it
knew. Neighbours are joined: the line above is fifty acknowledgements. Times are seconds of the
monotonic clock, which all processes of a machine share. checkers/ names the events of each subject.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Recorder:
    """Appends events to one file; threads may share it."""

    def __init__(self, directory: Path, subject: str, who: str) -> None:
        self._out = open(directory / f"{subject}.{who}.jsonl", "a", buffering=1)  # noqa: SIM115
        self._lock = threading.Lock()

    def note(self, event: str, **fields: Any) -> None:
        line = json.dumps({"e": event, **fields}, separators=(",", ":"))
        with self._lock:
            self._out.write(line + "\n")

    def close(self) -> None:
        self._out.close()


def now() -> float:
    return round(time.monotonic(), 4)


def subjects(directory: Path) -> list[str]:
    """The subject of this history: log, bank, keys, …"""
    return sorted({path.name.partition(".")[0] for path in directory.glob("*.jsonl")})


def events(directory: Path, subject: str) -> Iterator[Event]:
    """All events of a subject, file by file; a last line that was cut off is left out."""
    for path in sorted(directory.glob(f"{subject}.*.jsonl")):
        with open(path) as lines:
            for line in lines:
                if line.endswith("\n"):
                    event: Event = json.loads(line)
                    yield event
