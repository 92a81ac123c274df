"""GET /v1/loads: what each replica of this broker costs, for the rebalancer and for people.

    GET /v1/loads?window=hour&topic=orders

    {"broker": 0, "window": "hour", "seconds": 3612.4, "cpu": 0.31,
     "columns": ["topic", "partition", "leads", "disk_bytes", "bytes_in", …, "cpu"],
     "replicas": [["orders", 0, true, 1073741824, 52031.7, …, 0.02], …]}

Rates are per second, cpu is in cores and estimated. Rows instead of objects: ten thousand replicas
are 1 MB. Built in a thread; the list of replicas is copied first, in one step.
"""

from collections.abc import Mapping
from typing import Any

from odradek_broker.partition.load import COUNTERS
from odradek_broker.partition.load_history import WINDOWS
from odradek_broker.partition.service import PartitionService
from odradek_broker.runtime.clock import cpu_seconds

COLUMNS = ("topic", "partition", "leads", "disk_bytes", *COUNTERS, "cpu")
DEFAULT_WINDOW = "minute"


def replica_loads(
    broker_id: int, partitions: PartitionService, now_ms: float, query: Mapping[str, str]
) -> dict[str, Any]:
    """Raises ValueError, in a sentence, for a window that does not exist."""
    name = query.get("window", DEFAULT_WINDOW)
    if name not in WINDOWS:
        raise ValueError(f"window {name!r} is unknown; the windows are {', '.join(WINDOWS)}")
    hosted = list(partitions.by_name.items())
    loads = [partition.load for _, partition in hosted]
    window = partitions.load_history.window(name, loads, now_ms, cpu_seconds())
    topic = query.get("topic")
    rows = [
        [
            key[0],
            key[1],
            partition.leading is not None,
            partition.log.size_bytes,
            *(round(rate, 3) for rate in window.rates(partition.load)),
            round(window.cpu(partition.load), 6),
        ]
        for key, partition in hosted
        if topic is None or key[0] == topic
    ]
    return {
        "broker": broker_id,
        "window": name,
        "seconds": round(window.seconds, 1),
        "cpu": round(window.cpu_used, 4),
        "columns": COLUMNS,
        "replicas": rows,
    }
