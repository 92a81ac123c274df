"""/metrics of client quotas: how often and for how long clients were throttled, by quota."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from odradek_broker.security.quotas import ClientQuotas


def quota_metrics(quotas: ClientQuotas) -> Iterator[Metric]:
    times = CounterMetricFamily(
        "odradek_quota_throttled_requests",
        "Requests after which a client was throttled, by the quota that was exceeded.",
        labels=("quota",),
    )
    total = CounterMetricFamily(
        "odradek_quota_throttle_time_ms",
        "Milliseconds for which clients were throttled, by the quota that was exceeded.",
        labels=("quota",),
    )
    for quota, throttled in quotas.throttled().items():
        times.add_metric((quota,), throttled.times)
        total.add_metric((quota,), throttled.total_ms)
    yield times
    yield total
