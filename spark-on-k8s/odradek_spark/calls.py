"""Calls of librdkafka that are repeated while a coordinator moves, starts or does not answer."""

from __future__ import annotations

import time
from typing import Any

COMMIT_S = 240.0
REPEAT_S = 0.1


def repeat(call: Any) -> Any:
    """Until it succeeds: calls of transactions can be repeated after a time-out.

    librdkafka says so of these calls only; when the mark is read, it is the error that says it.
    """
    from confluent_kafka import KafkaError, KafkaException

    passing = (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,  # an offset of a transaction that is being ended
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    )
    deadline = time.monotonic() + COMMIT_S
    while True:
        try:
            return call()
        except KafkaException as error:
            known = error.args[0]
            again = known.retriable() or (known.code() in passing and not known.fatal())
            if not again or known.txn_requires_abort() or time.monotonic() > deadline:
                raise
            time.sleep(REPEAT_S)
