"""GetTelemetrySubscriptions and PushTelemetry, as the handlers call them."""

import asyncio
import base64
import logging
from collections.abc import Callable
from random import Random
from uuid import UUID

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.telemetry.instances import Instance, Instances
from odradek_broker.telemetry.otlp import Point, read_points
from odradek_broker.telemetry.store import TelemetryStore
from odradek_broker.telemetry.subscriptions import (
    Selection,
    Subscription,
    TelemetryClient,
    selection_for,
    subscriptions_in,
)
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

RESERVED_IDS = frozenset({0, 1})  # of topics and clients: "none", and the metadata topic
ACCEPTED_CODECS = (4, 3, 1, 2)  # zstd, lz4, gzip, snappy: the client takes the first it has

# The client as it is known without its instance id.
Known = Callable[[str], TelemetryClient]


class ClientTelemetry:
    def __init__(self, rng: Random | None = None) -> None:
        self._rng = rng or Random()
        self._configs: object = None  # of the image that `_subscriptions` were read from
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self.instances = Instances()
        self.store = TelemetryStore()
        # Since the start, for metrics.
        self.pushes = self.throttled = self.unknown_subscriptions = self.unreadable = 0

    def subscription_for(
        self, instance_id: UUID | None, known: Known, image: MetadataImage, now_ms: float
    ) -> Instance:
        """KafkaError if the client asks too often."""
        if instance_id is None or not instance_id.int:
            instance_id = UUID(int=self._rng.getrandbits(128), version=4)
        instance = self._instance(instance_id, known, image, now_ms)
        try:
            instance.asks(now_ms)
        except KafkaError:
            self.throttled += 1
            raise
        return instance

    async def push(
        self, request: Struct, known: Known, image: MetadataImage, size_max: int, now_ms: float
    ) -> None:
        """KafkaError if it is refused; the client keeps the error's rules (see `instances`)."""
        instance_id = request.client_instance_id
        if instance_id is None or instance_id.int in RESERVED_IDS:
            raise KafkaError(ErrorCode.invalid_request)
        instance = self._instance(instance_id, known, image, now_ms)
        data = bytes(request.metrics or b"")
        try:
            self._check(instance, request, len(data), size_max, now_ms)
            if data:
                points = await self._read(request.compression_type, data, size_max)
                until_ms = now_ms + instance.idle_ms_max
                self.store.put(instance_id, instance.client.client_id or "", points, until_ms)
                self.pushes += 1
            instance.last_error = ErrorCode.none
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = request.terminating

    def _check(
        self, instance: Instance, request: Struct, size: int, size_max: int, now_ms: float
    ) -> None:
        if instance.terminating:
            raise KafkaError(ErrorCode.invalid_request)
        sent = (request.subscription_id, request.compression_type, size, size_max)
        try:
            if request.terminating:
                instance.check(*sent)
            else:
                instance.pushes(*sent, now_ms)
        except KafkaError as error:
            self.throttled += error.code is ErrorCode.throttling_quota_exceeded
            self.unknown_subscriptions += error.code is ErrorCode.unknown_subscription_id
            raise

    async def _read(self, codec: int, data: bytes, size_max: int) -> list[Point]:
        """Decompresses at most `size_max` bytes. In a thread: it may take 50 ms."""
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, _read_compressed, codec, data, size_max)
        except DecodeError as error:
            self.unreadable += 1
            logger.info("a client's metrics are unreadable: %s", error)
            raise KafkaError(ErrorCode.invalid_record) from None

    def _instance(
        self, instance_id: UUID, known: Known, image: MetadataImage, now_ms: float
    ) -> Instance:
        self._read_subscriptions(image)

        def made() -> tuple[TelemetryClient, Selection]:
            client = known(text_of(instance_id))
            return client, selection_for(self._subscriptions, client)

        return self.instances.find(instance_id, self._version, made, now_ms)

    def has_subscriptions(self, image: MetadataImage) -> bool:
        self._read_subscriptions(image)
        return bool(self._subscriptions)

    def _read_subscriptions(self, image: MetadataImage) -> None:
        if self._configs is not image.configs:
            self._configs = image.configs
            before, self._subscriptions = self._subscriptions, subscriptions_in(image)
            self._version += before != self._subscriptions

    def expire(self, now_ms: float) -> None:
        """Forgets clients that have been silent; called before metrics are read."""
        self.instances.expire(now_ms)
        self.store.expire(now_ms)


def text_of(instance_id: UUID) -> str:
    """As Kafka writes ids: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(instance_id.bytes).decode().rstrip("=")


def _read_compressed(codec: int, data: bytes, size_max: int) -> list[Point]:
    # Imported late: few clusters have subscriptions.
    from odradek_protocol.records.compression import decompress

    return read_points(bytes(decompress(codec, data, size_max)))
