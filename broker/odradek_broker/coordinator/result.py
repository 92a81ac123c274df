"""The result of a coordinator's decision: records, a response, responses to parked requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from odradek_protocol.error_codes import KafkaError
from odradek_protocol.ids import ProducerId

T = TypeVar("T")


class Moment(NamedTuple):
    """The current time: monotonic for deadlines, wall time for records."""

    monotonic_ms: float
    wall_ms: int


class CoordinatorRecord(NamedTuple):
    """A value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """The producer of the transaction that a batch is part of."""

    id: ProducerId
    epoch: int


class DeferredResponse:
    """Stands for the response to a parked request; compared by identity."""

    __slots__ = ()


Answer = tuple[DeferredResponse, Any]  # the response, or a KafkaError


@dataclass(frozen=True, slots=True)
class CoordinatorResult(Generic[T]):
    """State that is in records has not changed yet. All responses are sent when `records` are
    committed, or at once if there are none and nothing else is uncommitted.

    volatile: the decision changed state that is in no record; if the records cannot be appended,
    the shard has to be reloaded. atomic: the records go into one batch (else into several, if they
    do not fit into one).
    """

    records: Sequence[CoordinatorRecord]
    response: T | DeferredResponse
    answers: Sequence[Answer] = ()
    volatile: bool = False
    atomic: bool = True


NOTHING: CoordinatorResult[None] = CoordinatorResult((), None)


def as_error(answer: object) -> KafkaError | None:
    return answer if isinstance(answer, KafkaError) else None
