"""The shape in which handlers answer: nested fields by name, of no particular version."""

from collections.abc import Sequence
from types import SimpleNamespace


class Struct(SimpleNamespace):
    """One structure of a message: `Struct(name="orders", partitions=[Struct(index=0)])`.

    Names are those of kio's classes. Arrays are lists or tuples, times are integers in
    milliseconds, error codes are `ErrorCode` or int, UUIDs are `uuid.UUID` or None. A field
    that is left out takes Kafka's default; one that the version in use lacks is dropped.
    """


class EncodedItems:
    """In the place of an array of structures: its items, each encoded already.

    A handler that gives the same items to many clients encodes them once
    (`api.encode_response_item`).
    """

    __slots__ = ("items",)

    def __init__(self, items: Sequence[bytes]) -> None:
        self.items = items
