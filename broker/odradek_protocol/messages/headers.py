"""Request and response headers, and which versions have the flexible kind.

    request   api_key i16, api_version i16, correlation_id i32, client_id nullable string (i16);
              flexible versions add tagged fields (header v2)
    response  correlation_id i32; flexible versions add tagged fields (header v1)

ApiVersions always answers with the response header v0: a client must be able to read it before it
knows the broker's versions. Example: 0003 0001 00000007 0001 61 is a Metadata v1 request with the
correlation id 7 of the client "a".
"""

import struct
from typing import Final

from librt.strings import read_i16_be, read_i32_be

from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.kio_table import APIS
from odradek_protocol.primitives import skip_tagged_fields

API_VERSIONS_KEY: Final = 18

_START: Final = struct.Struct(">hhih")
_START_BYTES: Final = 10
_CORRELATION: Final = struct.Struct(">i")
# The first version of each API whose header has tagged fields, by API key; -1 if there is none.
_FLEXIBLE_FROM: Final[list[int]] = [
    APIS[key][3] if key in APIS else -1 for key in range(max(APIS) + 1)
]


class RequestHeader:
    __slots__ = ("api_key", "api_version", "body_at", "client_id", "correlation_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_at: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_at = body_at  # where in the frame the request's own fields start


def supported_versions(api_key: int) -> range:
    """The versions that can be encoded and decoded (a handler may serve fewer)."""
    _, lowest, highest, _ = APIS[api_key]
    return range(lowest, highest + 1)


def flexible(api_key: int, version: int) -> bool:
    """Whether this version has compact lengths and tagged fields; also for unknown versions."""
    return version >= APIS[api_key][3]


def parse_request_header(frame: bytes) -> RequestHeader:
    """The header of a frame (without the 4-byte size). Raises only DecodeError.

    The version may be unknown; the caller then answers with an error (ApiVersions) or closes the
    connection (all others). An unknown API key is a DecodeError.
    """
    try:
        api_key: int = read_i16_be(frame, 0)
        version: int = read_i16_be(frame, 2)
        correlation_id: int = read_i32_be(frame, 4)
        length: int = read_i16_be(frame, 8)
        if not 0 <= api_key < len(_FLEXIBLE_FROM) or _FLEXIBLE_FROM[api_key] < 0:
            raise DecodeError(f"unknown API key {api_key}")
        at = _START_BYTES
        client_id = None
        if length >= 0:
            if at + length > len(frame):
                raise DecodeError("client id longer than the frame")
            client_id = frame[at : at + length].decode()
            at += length
        if version >= _FLEXIBLE_FROM[api_key]:
            at = skip_tagged_fields(frame, at) if frame[at] else at + 1
    except (IndexError, UnicodeDecodeError) as e:
        raise DecodeError(f"request header cut short or malformed: {e}") from None
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a request that we send."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    header = _START.pack(api_key, version, correlation_id, length) + name
    return header + b"\0" if flexible(api_key, version) else header


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    header = _CORRELATION.pack(correlation_id)
    if api_key != API_VERSIONS_KEY and flexible(api_key, version):
        return header + b"\0"
    return header
