"""Errors that pass by themselves: a new partition has no leader for a moment, a new group no
coordinator. Asked again until the deadline, then told in one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from odradek_cli.client import TIMEOUT_S, reason
from odradek_cli.errors import CliError

PAUSE_S = 0.1
PASSING = frozenset((
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
))  # fmt: skip

Answer = TypeVar("Answer")


def patiently(what: str, ask: Callable[[], Answer]) -> Answer:
    give_up = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in PASSING or time.monotonic() > give_up:
                raise CliError(f"{what}: {reason(error)}") from error
        time.sleep(PAUSE_S)
