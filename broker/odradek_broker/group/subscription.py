"""The topics that a member subscribes to, parsed from its protocol metadata.

The format is the clients' own (ConsumerProtocolSubscription): version int16, then an array of
topic names; newer versions append fields.
"""

from struct import error

from odradek_protocol.errors import DecodeError
from odradek_protocol.primitives import ITEMS_MAX, int32, legacy_text


def topics_of(metadata: bytes) -> set[str] | None:
    """None if it cannot be parsed: another protocol, or garbage."""
    try:
        (count,) = int32(metadata, 2)
        if not 0 <= count <= min(ITEMS_MAX, len(metadata)):
            return None
        topics = set()
        at = 6
        for _ in range(count):
            topic, at = legacy_text(metadata, at)
            topics.add(topic)
    except (error, IndexError, DecodeError, UnicodeDecodeError):
        return None
    return topics
