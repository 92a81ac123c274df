"""Who else uses the cluster during `odradek local demo`, and what is said of it at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from odradek_cli.demo_clients import Seen


@dataclass
class Findings:
    """Rows of the verdict; `complaints` are sentences, none if all is well."""

    rows: dict[str, Any] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


class Guest(Protocol):
    """Somebody who uses the cluster during the roll, beside the writer and the reader.

    `start` before the first write; `follow` returns when it keeps up with the writes; `line` is
    shown with every step of the roll, beginning with a comma; `finish` after the last write says
    what it found, and what is wrong with that; `stop` in any case.
    """

    def start(self, bootstrap: str, topic: str) -> None: ...

    def follow(self) -> None: ...

    def line(self) -> str: ...

    def finish(self, seen: Seen) -> Findings: ...

    def stop(self) -> None: ...
