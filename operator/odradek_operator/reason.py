"""Why an action is taken: the Event, the condition, the log line and `odradek plan` show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    code: str  # a word for machines: ConfigChanged
    message: str  # a sentence for people

    def __str__(self) -> str:
        return self.message
