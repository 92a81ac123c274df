"""What a decision is: the records that make it so, and the answer once they are committed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from odradek_broker.metadata.records import MetadataRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """Nothing has changed yet. `response` holds as soon as `records` are in the log."""

    records: Sequence[MetadataRecord]
    response: T
