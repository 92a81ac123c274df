"""Request and response headers, and which versions have the flexible kind.

    request   api_key i16, api_version i16, correlation_id i32, client_id nullable string (i16);
              flexible versions add tagged fields (header v2)
    response  correlation_id i32; flexible versions add tagged fields (header v1)

ApiVersions always answers with the bare response header v0: a client that does not know yet
what the broker speaks must be able to read it.
"""

import struct
from typing import Final

from odradek_broker.wire.errors import DecodeError
from odradek_broker.wire.kio_table import APIS
from odradek_broker.wire.primitives import skip_tagged_fields
from odradek_broker.wire.varint import Buffer

API_VERSIONS_KEY: Final = 18

_START: Final = struct.Struct(">hhih")
_CORRELATION: Final = struct.Struct(">i")


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


def parse_request_header(frame: Buffer) -> RequestHeader:
    """The header of a frame (without the 4-byte size). Raises only DecodeError.

    The version may be one that nobody knows; the caller answers that (ApiVersions) or closes
    the connection (the rest), as it does for an unknown API key, which is refused here.
    """
    try:
        api_key, version, correlation_id, length = _START.unpack_from(frame)
        if api_key not in APIS:
            raise DecodeError(f"unknown API key {api_key}")
        at = _START.size
        client_id = None
        if length >= 0:
            if at + length > len(frame):
                raise DecodeError("client id longer than the frame")
            client_id = str(frame[at : at + length], "utf-8")
            at += length
        if version >= APIS[api_key][3]:
            at = skip_tagged_fields(frame, at) if frame[at] else at + 1
    except (struct.error, IndexError, UnicodeDecodeError) as e:
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
