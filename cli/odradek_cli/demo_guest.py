"""An additional user of the cluster during `odradek local demo`, and its part of the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from odradek_cli.demo_clients import ClientsSeen


@dataclass
class Findings:
    """Rows of the result; `complaints` are sentences about failures, empty if there are none."""

    rows: dict[str, Any] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


class Guest(Protocol):
    """A program that uses the cluster during the roll, in addition to writer and reader.

    `start` before the first write; `follow` returns when it keeps up with the writes; `line` is
    shown with every step of the roll and begins with a comma; `finish`, after the last write,
    returns its findings; `stop` is called in any case.
    """

    def start(self, bootstrap: str, topic: str) -> None: ...

    def follow(self) -> None: ...

    def line(self) -> str: ...

    def finish(self, seen: ClientsSeen) -> Findings: ...

    def stop(self) -> None: ...
