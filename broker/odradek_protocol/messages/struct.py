"""The value that handlers return: nested fields by name, independent of a version."""

from collections.abc import Sequence
from types import SimpleNamespace


class Struct(SimpleNamespace):
    """One structure of a message: `Struct(name="orders", partitions=[Struct(index=0)])`.

    Names are those of kio's classes. Arrays are lists or tuples, times are integers in
    milliseconds, error codes are `ErrorCode` or int, UUIDs are `uuid.UUID` or None. A field
    that is left out takes Kafka's default; one that the version in use lacks is dropped.
    """


class EncodedItems:
    """The items of an array of structures, already encoded, instead of a list of `Struct`.

    A handler that sends the same items to many clients encodes them once
    (`api.encode_response_item`).
    """

    __slots__ = ("items",)

    def __init__(self, items: Sequence[bytes]) -> None:
        self.items = items
