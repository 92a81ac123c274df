"""Request and response headers of both kinds."""

import io

import pytest
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_writer

from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.api import parse_request_header, request_header, response_header


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ключ"])
@pytest.mark.parametrize(("version", "cls"), [(8, HeaderV1), (9, HeaderV2)])
def test_request_headers_equal_kio(version: int, cls: type, client_id: str | None) -> None:
    fields = {"request_api_key": 3, "request_api_version": version, "correlation_id": 77}
    buffer = io.BytesIO()
    entity_writer(cls)(buffer, cls(**fields, client_id=client_id))
    data = buffer.getvalue()
    assert request_header(3, version, 77, client_id) == data
    header = parse_request_header(data + b"body")
    assert (header.api_key, header.api_version, header.correlation_id) == (3, version, 77)
    assert (header.client_id, header.body_at) == (client_id, len(data))


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = request_header(3, 9, 1, "c")[:-1] + b"\x02\x00\x03abc\x09\x00" + b"body"
    assert frame[parse_request_header(frame).body_at :] == b"body"


def test_api_versions_has_a_flexible_request_but_a_bare_response_header() -> None:
    assert parse_request_header(request_header(18, 3, 5, "c") + b"x").body_at == 12
    assert response_header(18, 4, 5) == b"\0\0\0\x05"
    assert response_header(3, 9, 5) == b"\0\0\0\x05\0"
    assert response_header(3, 8, 5) == b"\0\0\0\x05"


def test_a_version_nobody_knows_still_parses() -> None:
    assert parse_request_header(request_header(18, 99, 5, "c")).api_version == 99


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x03",
        b"\x7f\xff\0\0\0\0\0\0\xff\xff",  # unknown API key
        b"\0\x03\0\0\0\0\0\0\x7f\xff",  # client id longer than the frame
        b"\0\x03\0\0\0\0\0\0\0\x01\xff",  # not UTF-8
        b"\0\x03\0\x09\0\0\0\0\xff\xff\xff\xff\xff\xff\x0f",  # 2**32 - 1 tagged fields
        b"\0\x03\0\x09\0\0\0\0\xff\xff\x01\0\x7f",  # tagged field longer than the frame
    ],
)
def test_bad_headers_are_a_decode_error(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_request_header(frame)


def test_the_number_of_tagged_fields_is_bounded() -> None:
    """50 million of them fit into a frame of 100 MB."""
    frame = request_header(3, 9, 1, "c")[:-1] + b"\xe8\x07" + b"\x63\x00" * 1000
    with pytest.raises(DecodeError, match="1000 tagged fields"):
        parse_request_header(frame)
