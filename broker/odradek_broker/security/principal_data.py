"""The principal in an Envelope, in Kafka's DefaultPrincipalData format.

version     int16, 0
type, name  compact strings
token       bool: authenticated by a delegation token
tags        none
"""

from odradek_broker.model.principal import Principal
from odradek_protocol.errors import DecodeError
from odradek_protocol.records.record_layout import BOOL, INT16, STRING
from odradek_protocol.varint import read_uvarint, write_uvarint

VERSION = 0


def encode_principal(principal: Principal) -> bytes:
    out = bytearray()
    INT16.write(out, VERSION)
    STRING.write(out, principal.type)
    STRING.write(out, principal.name)
    BOOL.write(out, principal.by_token)
    write_uvarint(out, 0)
    return bytes(out)


def decode_principal(data: bytes) -> Principal:
    """Raises DecodeError; unknown tagged fields, which no broker sends, are not accepted."""
    try:
        version, at = INT16.read(data, 0)
        type_, at = STRING.read(data, at)
        name, at = STRING.read(data, at)
        by_token, at = BOOL.read(data, at)
        tags, at = read_uvarint(data, at)
    except Exception as error:
        raise DecodeError(f"principal of an envelope: {error}") from None
    if version != VERSION or tags or at != len(data) or not type_ or name is None:
        raise DecodeError(f"principal of an envelope: version {version}, {len(data)} bytes")
    return Principal(type_, name, by_token)
