"""Client quotas in the metadata. Errors are compared with Apache Kafka in test_admin_parity.py."""

from typing import Any

from broker_tests.controller.support import after, cluster
from odradek_broker.controller import client_quotas
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek_broker.metadata.image_records import records_of
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages.struct import Struct

EMPTY = cluster({1: None})
ALICE = (("user", "alice"),)
PAIR = (("user", None), ("client-id", "reports"))


def entry(entity: tuple[tuple[str, str | None], ...], **limits: float | None) -> Struct:
    return Struct(
        # In the other order: the entity is the same.
        entity=[Struct(entity_type=kind, entity_name=name) for kind, name in reversed(entity)],
        ops=[
            Struct(key=key, value=limit or 0.0, remove=limit is None)
            for key, limit in limits.items()
        ],
    )


def alter(image: MetadataImage, *entries: Struct, validate_only: bool = False) -> Any:
    request = Struct(entries=list(entries), validate_only=validate_only)
    result = client_quotas.alter_client_quotas(image, request)
    changed = after(image, result.records)
    changed.validate()
    return changed, [ErrorCode(entry.error_code) for entry in result.response.entries]


def test_set_changed_and_removed() -> None:
    image, codes = alter(
        EMPTY, entry(ALICE, producer_byte_rate=1024.0, request_percentage=50.0), entry(PAIR)
    )
    assert codes == [ErrorCode.none] * 2
    assert image.client_quotas == {ALICE: {"producer_byte_rate": 1024.0, "request_percentage": 50}}
    image, _ = alter(
        image, entry(ALICE, producer_byte_rate=None), entry(PAIR, consumer_byte_rate=5)
    )
    assert image.client_quotas == {
        ALICE: {"request_percentage": 50},
        PAIR: {"consumer_byte_rate": 5},
    }
    image, _ = alter(image, entry(ALICE, request_percentage=None))
    assert image.client_quotas == {PAIR: {"consumer_byte_rate": 5}}


def test_no_record_where_nothing_changes() -> None:
    image, _ = alter(EMPTY, entry(ALICE, producer_byte_rate=1024.0))
    again, _ = alter(image, entry(ALICE, producer_byte_rate=1024.0, consumer_byte_rate=None))
    assert again.offset == image.offset


def test_an_entity_changes_as_a_whole_and_alone() -> None:
    wrong = entry(ALICE, producer_byte_rate=1.0, consumer_byte_rate=-1.0)
    image, codes = alter(EMPTY, wrong, entry(PAIR, producer_byte_rate=2.0))
    assert codes == [ErrorCode.invalid_request, ErrorCode.none]
    assert image.client_quotas == {PAIR: {"producer_byte_rate": 2.0}}


def test_not_a_number_is_refused() -> None:
    _, codes = alter(EMPTY, entry(ALICE, request_percentage=float("nan")))
    assert codes == [ErrorCode.invalid_request]


def test_validate_only() -> None:
    image, codes = alter(EMPTY, entry(ALICE, producer_byte_rate=1.0), validate_only=True)
    assert (codes, image.client_quotas) == ([ErrorCode.none], {})


def test_a_snapshot_has_them() -> None:
    image, _ = alter(EMPTY, entry(ALICE, producer_byte_rate=1.0), entry(PAIR, request_percentage=2))
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records_of(image):
        delta.replay(record)
    assert delta.finish(9).after.client_quotas == image.client_quotas
