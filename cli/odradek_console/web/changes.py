"""A change is shown before it is made: what it is about, each value from → to, and a button.

A page builds a Change and redirects to /changes/ID. What is confirmed there is exactly what was
shown: the change waits in the user's session, and the form has only its id.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from odradek_protocol.client.kafka_client import KafkaClient

PENDING_MAX = 20
VALID_S = 10 * 60.0


class ChangeError(Exception):
    """A refusal and its reason, as a sentence for the user."""


@dataclass(frozen=True)
class Row:
    what: str
    before: str
    after: str


@dataclass(frozen=True)
class Change:
    """`apply` runs in a thread and raises ClientError or ChangeError; `done` is shown then."""

    action: str  # for the audit log: "delete topic"
    subject: str  # "orders"
    title: str
    rows: tuple[Row, ...]
    apply: Callable[[KafkaClient], None] = field(repr=False)
    done: str = "Done."
    back: str = "/"
    then: str = "/"
    warning: str = ""
    type_to_confirm: str = ""  # what has to be typed, for what cannot be undone
    button: str = "Apply"

    def details(self) -> list[dict[str, str]]:
        return [{"what": r.what, "from": r.before, "to": r.after} for r in self.rows]


class PendingChanges:
    """Of one session."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: dict[str, tuple[float, Change]] = {}

    def add(self, change: Change) -> str:
        while len(self._waiting) >= PENDING_MAX:
            del self._waiting[next(iter(self._waiting))]
        change_id = secrets.token_urlsafe(9)
        self._waiting[change_id] = (self._now(), change)
        return change_id

    def get(self, change_id: str) -> Change | None:
        at, change = self._waiting.get(change_id, (0.0, None))
        return change if change is not None and self._now() - at <= VALID_S else None

    def take(self, change_id: str) -> Change | None:
        """It can be made once."""
        change = self.get(change_id)
        self._waiting.pop(change_id, None)
        return change
