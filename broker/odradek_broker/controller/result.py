"""The result of a decision: records, and the response to send when they are committed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from odradek_broker.metadata.records import MetadataRecord

T = TypeVar("T")

# The rest of a decision, which looks at every partition. A pure function of the image at the time
# of the decision, so no other decision may be made before its records are appended.
Sweep = Callable[[], Sequence[MetadataRecord]]


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T]):
    """Nothing has changed yet; `response` is valid when `records` are committed.

    With many partitions, more records come from `sweep`, which takes long.
    """

    records: Sequence[MetadataRecord]
    response: T
    sweep: Sweep | None = None

    def all_records(self) -> Sequence[MetadataRecord]:
        """The records including those of the sweep."""
        return [*self.records, *self.sweep()] if self.sweep is not None else self.records
