"""What a decision of a coordinator is: records, an answer, and answers to those who waited."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from odradek_protocol.error_codes import KafkaError
from odradek_protocol.ids import ProducerId

T = TypeVar("T")


class Moment(NamedTuple):
    """Now: monotonic time for deadlines, wall time for what goes into records."""

    monotonic_ms: float
    wall_ms: int


class CoordinatorRecord(NamedTuple):
    """A value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """Whose transaction a batch is part of."""

    id: ProducerId
    epoch: int


class DeferredResponse:
    """One request that waits for others; compared by identity."""

    __slots__ = ()


Answer = tuple[DeferredResponse, Any]  # the response, or a KafkaError


@dataclass(frozen=True, slots=True)
class CoordinatorResult(Generic[T]):
    """Nothing that a record says has changed yet. All answers are given when `records` are
    committed, or at once if there are none and nothing else is uncommitted.

    volatile: the decision changed what is in no record; if the records cannot be appended, the
    shard has to be loaded anew. atomic: the records go into one batch (else into several, if
    they do not fit into one).
    """

    records: Sequence[CoordinatorRecord]
    response: T | DeferredResponse
    answers: Sequence[Answer] = ()
    volatile: bool = False
    atomic: bool = True


NOTHING: CoordinatorResult[None] = CoordinatorResult((), None)


def as_error(answer: object) -> KafkaError | None:
    return answer if isinstance(answer, KafkaError) else None
