"""Checkers of histories: each finds anomalies that no fault of a broker may cause.

    check_directory(Path("round-7"))     →  [Anomaly("lost", "log", …), …]

Each module checks one kind of subject. None of them imports anything of the broker or of its
client library, and none does more I/O than reading the files. test_chaos_checkers.py has, for
every kind of anomaly, a history that contains it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from odradek_e2e.chaos import history
from odradek_e2e.chaos.checkers import (
    bank,
    copying,
    groups,
    java,
    keys,
    lists,
    offsets,
    records,
    topics,
)
from odradek_e2e.chaos.checkers.anomaly import Anomaly, Verdict

Checker = Callable[[str, list[history.Event]], Verdict]
RECORDS = records.check
CHECKERS: dict[str, Checker] = {
    "log": RECORDS,
    "squeezed": RECORDS,
    "trim": RECORDS,
    "copy-in": RECORDS,
    "java": java.check,
    "bank": bank.check,
    "lists": lists.check,
    "copy": copying.check,
    "groups": groups.check,
    "keys": keys.check,
    "offsets": offsets.check,
    "churn": topics.check,
}


def check_directory(directory: Path) -> dict[str, Verdict]:
    """The verdict on each subject of a round."""
    return {
        subject: CHECKERS[subject](subject, list(history.events(directory, subject)))
        for subject in history.subjects(directory)
        if subject in CHECKERS
    }


__all__ = ["CHECKERS", "Anomaly", "Verdict", "check_directory"]
