"""/metrics of log directories: free space, failures (`log/room.py` defines low and full)."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from odradek_broker.log.log_dir import LogDir

LABELS = ("logDirectory",)

_GAUGES: dict[str, tuple[str, Callable[[LogDir], float]]] = {
    "free_bytes": ("Free space of the file system, as last measured.", lambda d: d.room.free_bytes),
    "total_bytes": ("Size of the file system.", lambda d: d.room.total_bytes),
    "reserve_bytes": (
        "Free space below which produce requests are refused (odradek.log.dir.reserve.bytes).",
        lambda d: d.room.reserve_bytes,
    ),
    "low": ("1 while produce requests are refused because of low space.", lambda d: d.room.low),
    "full": ("1 while nothing is replicated into it because it is full.", lambda d: d.room.full),
    "offline": ("1 if the directory failed.", lambda d: d.failure is not None),
}


def storage_metrics(dirs: Sequence[LogDir]) -> Iterator[Metric]:
    for name, (text, value) in _GAUGES.items():
        gauge = GaugeMetricFamily(f"odradek_log_dir_{name}", text, labels=LABELS)
        for log_dir in dirs:
            gauge.add_metric((log_dir.path,), float(value(log_dir)))
        yield gauge
    refused = CounterMetricFamily(
        "odradek_log_dir_refused_produce",
        "Partitions in produce requests that were refused because of low space.",
        labels=LABELS,
    )
    for log_dir in dirs:
        refused.add_metric((log_dir.path,), log_dir.room.refused)
    yield refused
