"""One line of JSON for every change that was tried: who, from where, what, and how it ended.

{"at": "…", "user": "alice", "address": "127.0.0.1", "action": "delete topic", "subject": "orders",
 "changes": [{"what": …, "from": …, "to": …}], "outcome": "done"}
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

logger = logging.getLogger("odradek.console.audit")


class AuditLog:
    """Appends to a file that only its owner can read; without one, lines go to the log."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: int | None = None
        if path is not None:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(
        self,
        user: str,
        address: str,
        action: str,
        subject: str,
        changes: list[dict[str, str]],
        outcome: str,
    ) -> None:
        line = json.dumps(
            {
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "user": user,
                "address": address,
                "action": action,
                "subject": subject,
                "changes": changes,
                "outcome": outcome,
            },
            ensure_ascii=True,  # no line breaks or control characters of a user in the log
        )
        if self._file is None:
            logger.info("%s", line)
        else:
            os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
