"""Metrics that clients pushed (KIP-714) in /metrics, and how many clients there are.

`org.apache.kafka.producer.record.send.total` becomes `kafka_client_producer_record_send_total`. All
are gauges: the last value of each client. Names and attributes come from clients, so they are
cleaned here, and their number is bounded where they are kept (`telemetry/store.py`).
"""

import re
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from odradek_broker.telemetry.service import ClientTelemetry, text_of

PREFIX = "kafka_client_"
_OWN_LABELS = ("client_instance_id", "client_id")
_KAFKA = "org.apache.kafka."
_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


def client_metrics(telemetry: ClientTelemetry, now_ms: float) -> Iterable[Metric]:
    telemetry.expire(now_ms)
    group = "kafka_server_client_metrics"
    yield GaugeMetricFamily(
        f"{group}_instance_count",
        "Clients that asked for their metrics subscription.",
        value=len(telemetry.instances),
    )
    for name, text, number in (
        ("plugin_export", "Pushes that were accepted.", telemetry.pushes),
        ("plugin_error", "Pushes that could not be read.", telemetry.unreadable),
        ("throttle", "Requests that came too early.", telemetry.throttled),
        (
            "unknown_subscription_request",
            "Pushes for an older subscription.",
            telemetry.unknown_subscriptions,
        ),
        ("series_dropped", "Pushed values beyond the limits.", telemetry.store.dropped),
    ):
        yield CounterMetricFamily(f"{group}_{name}", text, value=number)
    yield from _pushed(telemetry)


def _pushed(telemetry: ClientTelemetry) -> Iterable[Metric]:
    families: dict[str, GaugeMetricFamily] = {}
    for instance_id, pushed in telemetry.store.clients():
        own = {"client_instance_id": text_of(instance_id), "client_id": pushed.client_id}
        for (name, attributes), value in pushed.points.items():
            family = families.get(name)
            if family is None:
                title = PREFIX + _clean(name.removeprefix(_KAFKA))
                family = families[name] = GaugeMetricFamily(title, "Pushed by clients (KIP-714).")
            labels = {_clean(key): text for key, text in attributes if key} | own
            family.add_sample(family.name, labels, value)
    # Two names may become the same one; a family may appear once only.
    by_title: dict[str, GaugeMetricFamily] = {}
    for family in families.values():
        known = by_title.setdefault(family.name, family)
        if known is not family:
            known.samples += family.samples
    yield from by_title.values()


def _clean(name: str) -> str:
    cleaned = _NOT_A_NAME.sub("_", name)
    return f"_{cleaned}" if cleaned[:1].isdigit() or cleaned.startswith("__") else cleaned
