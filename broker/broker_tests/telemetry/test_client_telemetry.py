"""Client metrics (KIP-714): who is asked for what, what is refused, and what a push may cost."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek_broker.admin.client_metrics import client_metrics
from odradek_broker.metadata.image import ConfigResource, MetadataImage
from odradek_broker.metadata.records import ResourceType
from odradek_broker.model.client_metrics_configs import validate_client_metrics_configs
from odradek_broker.telemetry import instances, store
from odradek_broker.telemetry.instances import Instance
from odradek_broker.telemetry.otlp import POINTS_MAX, Point, read_points
from odradek_broker.telemetry.service import ClientTelemetry
from odradek_broker.telemetry.subscriptions import TelemetryClient
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.struct import Struct
from odradek_protocol.records import compression
from odradek_protocol.varint import uvarint

BYTES_MAX = 10_000


def field(number: int, data: bytes) -> bytes:
    return uvarint(number << 3 | 2) + uvarint(len(data)) + data


def metric(name: str, value: float, kind: int = 5, **attributes: str) -> bytes:
    pairs = b"".join(
        field(7, field(1, key.encode()) + field(2, field(1, text.encode())))
        for key, text in attributes.items()
    )
    point = pairs + b"\x21" + struct.pack("<d", value)
    return field(2, field(1, name.encode()) + field(kind, field(1, point)))


def push_of(*metrics: bytes) -> bytes:
    return field(1, field(2, b"".join(metrics)))


def image_with(**subscriptions: dict[str, str]) -> MetadataImage:
    return MetadataImage(
        configs={
            ConfigResource(ResourceType.CLIENT_METRICS, name): own
            for name, own in subscriptions.items()
        }
    )


def known(instance_id: str) -> TelemetryClient:
    return TelemetryClient(instance_id, "orders-1", "apache-kafka-java", "4.3.1", "10.0.0.1")


ALL = image_with(all={"metrics": "*", "interval.ms": "1000"})


class Pushing:
    """One client of a broker."""

    def __init__(self, image: MetadataImage = ALL) -> None:
        self.image = image
        self.telemetry = ClientTelemetry(Random(1))
        self.now_ms = 1_000_000.0

    def ask(self, instance_id: UUID | None = None) -> Instance:
        return self.telemetry.subscription_for(instance_id, known, self.image, self.now_ms)

    def push(
        self, instance: Instance, data: bytes, *, terminating: bool = False, **changed: object
    ) -> ErrorCode:
        request = Struct(
            client_instance_id=instance.instance_id,
            subscription_id=instance.subscription_id,
            terminating=terminating,
            compression_type=0,
            metrics=data,
        )
        request = Struct(**{**request.__dict__, **changed})
        try:
            asyncio.run(self.telemetry.push(request, known, self.image, BYTES_MAX, self.now_ms))
        except KafkaError as error:
            return error.code
        return ErrorCode.none

    def shown(self) -> dict[str, float]:
        return {
            f"{sample.name}{dict(sorted(sample.labels.items()))}": sample.value
            for family in client_metrics(self.telemetry, self.now_ms)
            for sample in family.samples
            if sample.name.startswith("kafka_client_")
        }


def test_all_matching_subscriptions_are_joined() -> None:
    """The metrics of all that match, the shortest interval; `*` stands for every metric."""
    mine = {"metrics": "a.,b.", "interval.ms": "60000", "match": "client_id=orders-.*"}
    also = {"metrics": "b.,c.", "interval.ms": "500"}
    other = {"metrics": "d.", "interval.ms": "100", "match": "client_id=orders"}
    asked = Pushing(image_with(mine=mine, also=also, other=other)).ask().selection
    assert (asked.metrics, asked.interval_ms) == (("a.", "b.", "c."), 500)
    assert Pushing(image_with(mine=mine, all={"metrics": "x,*"})).ask().selection.metrics == ("*",)
    nothing = Pushing(image_with(other=other)).ask().selection
    assert (nothing.metrics, nothing.interval_ms) == ((), 300_000)


@pytest.mark.parametrize(
    ("own", "code"),
    [
        ({"metrics": "a.", "interval.ms": "100", "match": "client_id=.*"}, None),
        ({"interval.ms": "99"}, ErrorCode.invalid_request),
        ({"interval.ms": "3600001"}, ErrorCode.invalid_request),
        ({"nothing": "1"}, ErrorCode.invalid_request),
        ({"match": "client_id"}, ErrorCode.invalid_config),
        ({"match": "color=red"}, ErrorCode.invalid_config),
        ({"match": "client_id=("}, ErrorCode.invalid_config),
        ({"match": "client_id=(((a{999}){999}){999})"}, ErrorCode.invalid_config),
    ],
)
def test_settings_are_checked(own: dict[str, str], code: ErrorCode | None) -> None:
    if code is None:
        validate_client_metrics_configs(own)
        return
    with pytest.raises(KafkaError) as refused:
        validate_client_metrics_configs(own)
    assert refused.value.code is code


def test_requests_come_once_per_interval() -> None:
    """Also the first push after each subscription; a last push is accepted at any time."""
    client = Pushing()
    instance = client.ask()
    with pytest.raises(KafkaError) as refused:
        client.ask(instance.instance_id)
    assert refused.value.code is ErrorCode.throttling_quota_exceeded
    client.now_ms += 1
    assert client.push(instance, push_of(metric("m", 1))) is ErrorCode.none
    assert client.push(instance, push_of(metric("m", 2))) is ErrorCode.throttling_quota_exceeded
    client.now_ms += 1000
    assert client.push(instance, push_of(metric("m", 3))) is ErrorCode.none
    assert client.push(instance, push_of(metric("m", 4)), terminating=True) is ErrorCode.none
    client.now_ms += 1000
    assert client.push(instance, push_of(metric("m", 5))) is ErrorCode.invalid_request


def test_a_changed_subscription_is_asked_for_again_at_once() -> None:
    client = Pushing()
    instance = client.ask()
    client.image = image_with(all={"metrics": "m", "interval.ms": "1000"})
    client.now_ms += 1000
    assert client.push(instance, push_of(metric("m", 1))) is ErrorCode.unknown_subscription_id
    renewed = client.ask(instance.instance_id)
    assert renewed.selection.metrics == ("m",)
    assert client.push(renewed, push_of(metric("m", 1)), terminating=True) is ErrorCode.none


def test_pushed_values_are_shown_with_the_name_of_the_client() -> None:
    client = Pushing()
    name = "org.apache.kafka.producer.record-send.total"
    data = push_of(metric(name, 5.0, 7, topic="t"), metric("client.id", 2.0))
    assert client.push(client.ask(), data) is ErrorCode.none
    shown = client.shown()
    assert sorted(shown.values()) == [2.0, 5.0]
    sent = next(line for line in shown if "record_send_total" in line)
    assert sent.startswith("kafka_client_producer_record_send_total")
    assert "'topic': 't'" in sent
    assert "'client_id': 'orders-1'" in sent
    client.now_ms += instances.IDLE_MS_MIN  # a client that is silent is forgotten
    assert client.shown() == {}
    assert client.telemetry.store.series == 0


def test_a_bomb_is_refused() -> None:
    """Compressed it is small: 1 MB of zeros in 100 bytes. What is too large as it is, too."""
    client = Pushing()
    bomb = compression.compress(compression.ZSTD, bytes(1_000_000))
    assert len(bomb) < 200
    assert client.push(client.ask(), bytes(bomb), compression_type=4) is ErrorCode.invalid_record
    client = Pushing()
    assert client.push(client.ask(), bytes(BYTES_MAX + 1)) is ErrorCode.telemetry_too_large
    client = Pushing()
    codec = client.push(client.ask(), b"x", compression_type=9)
    assert codec is ErrorCode.unsupported_compression_type


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SERIES_PER_CLIENT_MAX", 10)
    monkeypatch.setattr(store, "SERIES_MAX", 15)
    kept = store.TelemetryStore()
    for number in range(3):
        kept.put(UUID(int=number + 2), "c", [Point(f"m{n}", (), 1.0) for n in range(12)], number)
    assert kept.series == 15
    assert kept.dropped == 21
    kept.expire(0)
    assert kept.series == 5


def test_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "INSTANCES_MAX", 3)
    client = Pushing()
    first = client.ask()
    for _ in range(5):
        client.ask()
    assert len(client.telemetry.instances) == 3
    assert first.instance_id not in client.telemetry.instances


def test_points_of_one_push_are_bounded() -> None:
    data = push_of(*(metric(f"m{n}", n) for n in range(POINTS_MAX + 50)))
    assert len(read_points(data)) == POINTS_MAX


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for hostile in (data, field(1, field(2, data)), push_of(field(2, data))):
        with contextlib.suppress(DecodeError):
            read_points(hostile)
