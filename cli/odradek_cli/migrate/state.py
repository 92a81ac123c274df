"""How far a partition is copied, and a checksum of it: kept in the destination with the data.

The state of a partition is a committed offset of the migration's own group in the destination, put
there in the same transaction as the records that it speaks of: after a kill, either both are there
or neither is. The offset is the next one to read in the source; the commit's metadata holds the
rest, as JSON of about 90 bytes:

    {"count": 1200, "digest": "6f1c…", "done": false}

`digest` is a chain over all records so far, h' = blake2b(h + record), so that it can be continued
after a restart and depends on the order. It covers key, value, headers and timestamp.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from odradek_cli.errors import CliError

if TYPE_CHECKING:
    from confluent_kafka import Message

DIGEST_BYTES = 16
START = bytes(DIGEST_BYTES)
UNDATED_MS = 1  # librdkafka takes 0 and -1 for "now"; a record without a time gets this one

_LENGTHS = Struct(">qii")
_NULL = -1

Headers = list[tuple[str, bytes | None]]
Place = tuple[str, int]  # topic and partition


def place_of(message: Message) -> Place:
    topic, partition = message.topic(), message.partition()
    assert topic is not None, "a message of no topic"
    assert partition is not None, "a message of no partition"
    return topic, partition


def offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a message without an offset"
    return offset


@dataclass(frozen=True)
class PartitionState:
    position: int  # the next offset to read in the source
    count: int = 0
    digest: bytes = START
    done: bool = False  # cut over: the destination is in use

    def after(self, message: Message) -> PartitionState:
        digest = chained(self.digest, message)
        return replace(self, position=offset_of(message) + 1, count=self.count + 1, digest=digest)

    def at(self, position: int) -> PartitionState:
        """Skips offsets without a record: markers of transactions, gaps left by compaction."""
        return replace(self, position=max(position, self.position))

    def metadata(self) -> str:
        return json.dumps({"count": self.count, "digest": self.digest.hex(), "done": self.done})

    @classmethod
    def parse(cls, position: int, metadata: str | None) -> PartitionState:
        try:
            found: dict[str, Any] = json.loads(metadata or "")
            digest = bytes.fromhex(found["digest"])
            return cls(position, int(found["count"]), digest, bool(found["done"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CliError(f"the state of the migration is unreadable: {metadata!r}") from error


def timestamp_ms(message: Message) -> int:
    """The record's time as it is written to the destination."""
    return max(int(message.timestamp()[1]), UNDATED_MS)


def chained(digest: bytes, message: Message) -> bytes:
    """The next link of the chain; with lengths, so that different records give different bytes."""
    key, value = message.key(), message.value()
    headers = cast(Headers, message.headers() or [])
    out = blake2b(digest, digest_size=DIGEST_BYTES)
    out.update(_LENGTHS.pack(timestamp_ms(message), _length(key), _length(value)))
    out.update(key or b"")
    out.update(value or b"")
    for name, content in headers:
        encoded = name.encode()
        out.update(_LENGTHS.pack(0, len(encoded), _length(content)))
        out.update(encoded)
        out.update(content or b"")
    return out.digest()


def _length(content: bytes | None) -> int:
    return _NULL if content is None else len(content)
