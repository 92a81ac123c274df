"""What a decision is: the records that make it so, and the answer once they are committed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from odradek_broker.metadata.records import MetadataRecord

T = TypeVar("T")

# What is still to be worked out, by a look at every partition: pure, and for the image of that
# moment only, so no other decision may be made before its records are appended.
Sweep = Callable[[], Sequence[MetadataRecord]]


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T]):
    """Nothing has changed yet. `response` holds as soon as `records` are in the log.

    Where there are many partitions, more records may follow from `sweep`, which takes long.
    """

    records: Sequence[MetadataRecord]
    response: T
    sweep: Sweep | None = None

    def all_records(self) -> Sequence[MetadataRecord]:
        """Those of the sweep, too."""
        return [*self.records, *self.sweep()] if self.sweep is not None else self.records
