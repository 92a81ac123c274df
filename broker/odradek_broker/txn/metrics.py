"""Counters of the transaction coordinator and of the leaders that ask it, exported by
`admin/transaction_metrics.py`."""

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionMetrics:
    """Of the coordinator: transactions whose markers are all written, and those that it aborted."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0  # counted in `aborted` too, when their markers are written


@dataclass(slots=True)
class VerifierMetrics:
    """Of partition leaders: batches and offsets that wait for an answer of the coordinator."""

    verifications: int = 0
    failures: int = 0
