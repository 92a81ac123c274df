"""The kio adapter: every API and version, both directions, held equal to kio's bytes."""

import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from broker_tests.protocol.kio_values import (
    kio_bytes,
    load,
    random_instance,
    to_struct,
    without_missing,
)
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages import api, generate
from odradek_protocol.messages.api import DecodeError, Struct
from odradek_protocol.messages.kio_table import APIS
from odradek_protocol.messages.produce import decode_produce
from odradek_protocol.messages.schema import Kind

KINDS = [("request", api.decode_request, api.encode_request),
         ("response", api.decode_response, api.encode_response)]  # fmt: skip


@pytest.mark.parametrize("api_key", APIS, ids=lambda key: APIS[key][0])
@pytest.mark.parametrize(("kind", "decode", "encode"), KINDS, ids=["request", "response"])
def test_equals_kio_in_every_version(
    api_key: int, kind: Kind, decode: Callable[..., Struct], encode: Callable[..., bytes]
) -> None:
    rng = random.Random(api_key)
    name = APIS[api_key][0]
    for version in api.supported_versions(api_key):
        cls = load(name, version, kind)
        for _ in range(6):
            instance = random_instance(cls, rng)
            expected = to_struct(instance)
            data = kio_bytes(instance)
            assert encode(api_key, version, expected) == data, (version, instance)
            decoded = decode(api_key, version, b"head" + data + b"tail", 4)
            assert without_missing(decoded, cls) == expected, (version, instance)


def test_the_table_is_that_of_the_installed_kio() -> None:
    table = Path(generate.__file__).with_name("kio_table.py")
    assert table.read_text() == generate.render(), "run make gen"
    api_keys = table.with_name("api_keys.py")
    assert api_keys.read_text() == generate.render_api_keys(), "run make gen"


def test_a_field_of_another_version_reads_as_its_default() -> None:
    request = api.decode_request(3, 0, b"\0\0\0\x01\0\x01a")
    assert request.topics[0].name == "a"
    assert request.topics[0].topic_id is None
    assert request.allow_auto_topic_creation is True
    assert request.include_topic_authorized_operations is False
    old = api.decode_request(20, 6, api.encode_request(20, 6, Struct(topics=[Struct(name="a")])))
    assert old.topic_names == ()
    assert old.timeout == 0


def test_a_field_that_the_version_lacks_is_dropped() -> None:
    topic = Struct(name="a", topic_id=UUID(int=7), error_code=ErrorCode.none, partitions=[])
    answer = Struct(brokers=[], topics=[topic], cluster_id="c", throttle_time=5)
    for version in api.supported_versions(3):
        decoded = api.decode_response(3, version, api.encode_response(3, version, answer))
        assert decoded.topics[0].name == "a"
        assert decoded.cluster_id == ("c" if version >= 2 else None)
        assert decoded.topics[0].topic_id == (UUID(int=7) if version >= 10 else None)


def test_a_name_that_no_version_has_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        api.encode_response(3, 12, Struct(colour="red"))
    with pytest.raises(TypeError, match="colour"):
        api.encode_response(3, 12, Struct(topics=[Struct(colour="red")]))


def test_none_for_what_may_not_be_null_names_the_field() -> None:
    with pytest.raises(TypeError) as caught:
        api.encode_response(3, 12, Struct(brokers=[Struct(host=None)]))
    assert "in field host" in caught.value.__notes__


def test_an_unknown_api_or_version_is_a_decode_error() -> None:
    with pytest.raises(DecodeError):
        api.decode_request(999, 0, b"")
    with pytest.raises(DecodeError):
        api.decode_request(3, 99, b"")


def test_an_error_code_that_kio_does_not_know_stays_a_number() -> None:
    data = api.encode_response(12, 0, Struct(error_code=31_000))
    assert api.decode_response(12, 0, data).error_code == 31_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x7f\xff\xff\xff",  # 2**31 - 1 topics in no bytes
        b"\xff\xff\xff\xfe",  # -2 topics
        b"\0\0\0\x01\x7f\xff",  # a name longer than the frame
        b"\0\0\0\x01\xff\xff",  # null for a name
        b"\0\0\0\x01\0\x01\xff",  # not UTF-8
    ],
)
def test_bad_bytes_are_a_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError):
        api.decode_request(3, 0, body)


def test_the_items_of_all_arrays_together_are_bounded() -> None:
    """2 MB of two-byte topics would become 300 MB of objects."""
    body = b"\x81\x80\x40" + b"\x02a\0" * 0x100000  # Metadata 9: 2**20 topics named "a"
    with pytest.raises(DecodeError, match="more items than are allowed"):
        api.decode_request(3, 9, body)


@pytest.mark.parametrize("api_key", [0, 10, 18])  # Produce has a reader of its own
def test_a_string_is_as_long_as_in_kafka_at_most(api_key: int) -> None:
    """The attack: a group id of 100 MB, which stays in the memory."""
    version = {0: 9, 10: 6, 18: 4}[api_key]

    def frame(size: int) -> bytes:
        text = "a" * size
        return api.encode_request(
            api_key,
            version,
            {
                0: Struct(transactional_id=text, acks=1, timeout=1, topic_data=[]),
                10: Struct(key_type=0, coordinator_keys=[text]),
                18: Struct(client_software_name=text, client_software_version="1"),
            }[api_key],
        )

    def read(data: bytes) -> None:
        if api_key == 0:
            decode_produce(version, data, 0)
        else:
            api.decode_request(api_key, version, data)

    read(frame(0x7FFF))
    with pytest.raises(DecodeError, match="string of 32768 bytes"):
        read(frame(0x8000))


def test_an_answer_may_describe_a_large_cluster() -> None:
    """30,000 partitions with three replicas: 220,000 items, more than a request may have."""
    partition = Struct(leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
    topic = Struct(name="a", partitions=[partition] * 3)
    body = api.encode_response(3, 12, Struct(brokers=[], topics=[topic] * 10_000))
    answer = api.decode_response(3, 12, body)
    assert len(answer.topics) == 10_000
    assert list(answer.topics[-1].partitions[2].isr_nodes) == [1, 2, 3]
    body = b"\0\0\0\0" + b"\x01\x01\0" + b"\x81\x89\x7a" + b"\0\0\x02a\0\x01\0" * 2_000_001
    with pytest.raises(DecodeError):
        api.decode_response(3, 9, body)
