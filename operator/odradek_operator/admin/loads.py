"""Loads that brokers measured themselves, from their metrics port.

    read_loads({0: "127.0.0.1:9404", 1: "127.0.0.1:9405"}, "hour")
    read_loads(metrics_ports(client), "hour")       # ours say in their settings where that is
    read_loads(at_port(client, 9404), "hour")       # the same port on the host of every broker

Ours answer /v1/loads with the load of each replica over the window. Apache Kafka has rates per
topic in JMX, which its exporter serves as /metrics: the one of a minute, and for longer windows
that of 15 minutes, the longest there is (both decay exponentially). A broker that does not answer
in time, or has measured for too short a time, is left out: its logs tell how much they grow.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException

from odradek_operator.kafka.observed import Loads
from odradek_protocol.client import ClientError, KafkaClient
from odradek_protocol.client.admin import brokers, configs
from odradek_protocol.client.admin.configs import ResourceType
from odradek_protocol.client.settings import Address
from odradek_protocol.ids import TopicPartition

LISTENER = "odradek.admin.listener"
ANY_ADDRESS = ("", "0.0.0.0", "::")
WINDOWS = ("minute", "hour", "day")
TIMEOUT_S = 3.0
AT_ONCE = 16  # brokers that are asked at the same time
ANSWER_BYTES_MAX = 256 << 20  # of one broker: 20,000 partitions of Apache Kafka are 20 MB
SECONDS_MIN = 2.0  # a shorter window says nothing
# Window → the JMX attribute of a meter, and how long it looks back.
APACHE = {"minute": ("oneminute", 60.0), "hour": ("fifteenminute", 900.0),
          "day": ("fifteenminute", 900.0)}  # fmt: skip
_METER = re.compile(
    r'^kafka_server_brokertopicmetrics_bytes(in|out)_(\w+)rate\{topic="([^"]*)",?\} (\S+)'
)


class _UnknownPathError(Exception):
    """404: not one of our brokers."""


@dataclass
class _Answer:
    seconds: float = 0.0
    cpu: float | None = None
    replicas: list[tuple[TopicPartition, float, float]] = field(default_factory=list)
    topics: dict[str, tuple[float, float]] = field(default_factory=dict)


def metrics_ports(client: KafkaClient) -> dict[int, str]:
    """Live broker → host:port of its metrics, by its settings. Apache Kafka has no such setting."""
    live = {b: one for b, one in brokers.describe_cluster(client).brokers.items() if not one.fenced}
    answers = configs.describe_configs(client, ResourceType.BROKER, map(str, live), {LISTENER})
    found = {}
    for broker, one in live.items():
        answer = answers.get(str(broker))
        entry = None if isinstance(answer, ClientError | None) else answer.get(LISTENER)
        if at := reachable((entry.value if entry else None) or "", one.address.host):
            found[broker] = at
    return found


def at_port(client: KafkaClient, port: int) -> dict[int, str]:
    """Live broker → host:port, the same port on the host that each one advertises."""
    found = brokers.describe_cluster(client).brokers
    return {b: str(Address(one.address.host, port)) for b, one in found.items() if not one.fenced}


def reachable(listener: str, broker_host: str) -> str:
    """The address of a listener, for a client that reaches the broker at this host; or empty.

    A listener on all addresses is reached at the broker's host; one on loopback only by a client
    that reaches the broker over loopback. Port 0 is one that only the broker's log names.
    """
    host, _, port = listener.rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal() or port == "0":
        return ""
    host = broker_host if host in ANY_ADDRESS else host
    return "" if _loopback(host) and not _loopback(broker_host) else str(Address(host, int(port)))


def _loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def read_loads(
    addresses: Mapping[int, str], window: str = "hour", timeout_s: float = TIMEOUT_S
) -> Loads:
    """Broker → host:port of its metrics. Never raises for a broker that does not answer."""
    if window not in WINDOWS:
        raise ValueError(f"window {window!r} is unknown; the windows are {', '.join(WINDOWS)}")
    if not addresses:
        return Loads(window)

    def ask(address: str) -> _Answer | None:
        return _ask(address, window, timeout_s)

    with ThreadPoolExecutor(min(AT_ONCE, len(addresses))) as pool:
        answers = dict(zip(addresses, pool.map(ask, addresses.values()), strict=True))
    found = {b: a for b, a in answers.items() if a is not None and a.seconds >= SECONDS_MIN}
    bytes_in: Counter[TopicPartition] = Counter()
    bytes_out: Counter[TopicPartition] = Counter()
    for answer in found.values():
        for place, produced, consumed in answer.replicas:
            bytes_in[place] += produced  # type: ignore[assignment]
            bytes_out[place] += consumed  # type: ignore[assignment]
    return Loads(
        window,
        {b: a.seconds for b, a in found.items()},
        bytes_in,
        bytes_out,
        {(b, topic): rates for b, a in found.items() for topic, rates in a.topics.items()},
        {b: a.cpu for b, a in found.items() if a.cpu is not None},
    )


def _ask(address: str, window: str, timeout_s: float) -> _Answer | None:
    try:
        try:
            return _ours(_get(f"http://{address}/v1/loads?window={window}", timeout_s))
        except _UnknownPathError:
            return _apaches(_get(f"http://{address}/metrics", timeout_s), window)
    except (_UnknownPathError, OSError, HTTPException, ValueError, KeyError, TypeError):
        return None


def _get(url: str, timeout_s: float) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:
            body: bytes = response.read(ANSWER_BYTES_MAX)
            return body
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise _UnknownPathError from None
        raise


def _ours(body: bytes) -> _Answer:
    try:
        document = json.loads(body)
    except ValueError:
        raise _UnknownPathError from None  # an exporter that answers every path with its metrics
    columns = {name: at for at, name in enumerate(document["columns"])}
    topic, partition = columns["topic"], columns["partition"]
    produced, consumed = columns["bytes_in"], columns["bytes_out"]
    replicas = [
        (TopicPartition(row[topic], row[partition]), float(row[produced]), float(row[consumed]))
        for row in document["replicas"]
    ]
    return _Answer(float(document["seconds"]), float(document["cpu"]), replicas)


def _apaches(body: bytes, window: str) -> _Answer:
    attribute, seconds = APACHE[window]
    rates: dict[str, list[float]] = {}
    for line in body.decode().splitlines():
        match = _METER.match(line)
        if match is not None and match[2] == attribute:
            rates.setdefault(match[3], [0.0, 0.0])[match[1] == "out"] = float(match[4])
    return _Answer(seconds, None, [], {t: (r[0], r[1]) for t, r in rates.items()})
