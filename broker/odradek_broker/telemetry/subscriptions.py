"""Which metrics a client is asked for: all subscriptions that match it, together. Does no I/O."""

from collections.abc import Mapping
from typing import NamedTuple

from crc32c import crc32c

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import ResourceType
from odradek_broker.model.client_metrics_configs import (
    CLIENT_METRICS_CONFIGS,
    full_match,
    match_patterns,
)

INTERVAL_MS_DEFAULT = 300_000
ALL_METRICS = "*"


class TelemetryClient(NamedTuple):
    """A client as subscriptions match it; None: unknown."""

    client_instance_id: str
    client_id: str | None
    client_software_name: str | None
    client_software_version: str | None
    client_source_address: str | None


class Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]


class Selection(NamedTuple):
    """The metrics that one client is to send. None: it asks again after the interval."""

    metrics: tuple[str, ...]
    interval_ms: int

    def subscription_id(self, instance_hash: int) -> int:
        """Changes with the selection; differs from client to client."""
        digest = crc32c(f"{self.metrics}{self.interval_ms}".encode()) ^ (instance_hash & 0xFFFFFFFF)
        return digest - (1 << 32) if digest >= 1 << 31 else digest


def subscriptions_in(image: MetadataImage) -> dict[str, Subscription]:
    found = {}
    for resource, own in image.configs.items():
        if resource.type is not ResourceType.CLIENT_METRICS or not own:
            continue
        values = {name: key.parse(own.get(name, key.default)) for name, key in _KEYS}
        metrics, interval_ms = values["metrics"], values["interval.ms"]
        assert isinstance(metrics, tuple)
        assert isinstance(interval_ms, int)
        found[resource.name] = Subscription(
            metrics, interval_ms, match_patterns(own.get("match", ""))
        )
    return found


_KEYS = tuple(CLIENT_METRICS_CONFIGS.items())


def selection_for(subscriptions: Mapping[str, Subscription], client: TelemetryClient) -> Selection:
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for one in subscriptions.values():
        if _matches(one, client):
            metrics.update(one.metrics)
            interval_ms = min(interval_ms, one.interval_ms)
    names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return Selection(names, interval_ms)


def _matches(subscription: Subscription, client: TelemetryClient) -> bool:
    attributes = client._asdict()
    for name, expression in subscription.match.items():
        value = attributes.get(name)
        if value is None or not full_match(expression, value):
            return False
    return True
