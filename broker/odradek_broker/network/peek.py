"""Reads the client id from the first bytes of a request, before it has arrived whole.

    00 01 00 11 00 00 00 07 00 10 "broker-2-fetcher" …     Fetch v17, correlation id 7

Other brokers are recognised by the client id of their connections (`broker-<node id>-<purpose>`).
Where clients and brokers share a listener, a client could use such an id too: adr/0014 says what it
would gain by that, and what it would not.
"""

import re
import struct
from typing import Final

_CLIENT_ID_AT: Final = 8
_BROKER: Final = re.compile(r"broker-\d+-")


def client_id_of(head: bytes) -> str | None:
    """The client id in a frame's first bytes; None if it is not there (yet)."""
    start = _CLIENT_ID_AT + 2
    if len(head) < start:
        return None
    (length,) = struct.unpack_from(">h", head, _CLIENT_ID_AT)
    if length < 0 or len(head) < start + length:
        return None
    return head[start : start + length].decode(errors="replace")


def is_broker(client_id: str | None) -> bool:
    return client_id is not None and _BROKER.match(client_id) is not None
