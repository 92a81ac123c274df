"""Settings that Apache Kafka (KRaft mode) needs and our own broker does not.

The brokers that form the cluster are controllers too, or there are dedicated controllers
(spec.controllers). Either way these are the voters of a dynamic quorum (KIP-853), so that they can
be replaced later; other nodes are observers. A voter has a directory id, which is set when its disk
is formatted. It is derived from the cluster id and the node id, so that every node can compute it.

    kafka-storage format -t CLUSTER_ID -c server.properties --initial-controllers 0@host:9093:ID,…

Its metrics are in JMX; a Java agent in its JVM serves them to Prometheus (apache-metrics.yaml).
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek_operator.kafka.links import CONTROLLER_NAME, CONTROLLERS

CLUSTER_ID, FORMAT = "@cluster-id", "@format"  # for the program that formats the disk
METRICS = "@metrics"  # host:port of /metrics, for the program that starts it
METRICS_RULES = Path(__file__).with_name("apache-metrics.yaml")
METRICS_AGENT = "jmx_prometheus_javaagent-*.jar"  # among Kafka's jars
LISTENERS = "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"


def apache_settings(
    node: int,
    listeners: str,  # empty: a dedicated controller
    advertised: str,
    metrics: str,
    formation: Sequence[int],
    controllers: Mapping[int, Mapping[str, str]],  # possible voters → listener → host:port
    cluster_id: str,
) -> dict[str, str]:
    votes = node in formation
    roles = [*(["broker"] if listeners else []), *(["controller"] if votes else [])]
    binds, names = [listeners], [advertised]
    for name, address in controllers[node].items() if votes else ():
        host, _, port = address.rpartition(":")
        binds.append(f"{name}://{host if host.startswith('127.') else ''}:{port}")
        names.append(f"{name}://{address}")
    reached = {b: next(iter(controllers[b].values())) for b in formation}
    voters = [f"{b}@{address}:{directory_id(cluster_id, b)}" for b, address in reached.items()]
    listed = controllers[formation[0]] if formation else {CONTROLLER_NAME: ""}
    return {
        "process.roles": ",".join(roles),
        "listeners": ",".join(filter(None, binds)),
        "advertised.listeners": ",".join(filter(None, names)),
        "listener.security.protocol.map": LISTENERS,
        **({"inter.broker.listener.name": "PLAINTEXT"} if listeners else {}),
        CONTROLLERS: ",".join(listed),
        "controller.quorum.bootstrap.servers": ",".join(reached.values()),
        METRICS: metrics,
        CLUSTER_ID: cluster_id,
        FORMAT: f"--initial-controllers {','.join(voters)}"
        if votes
        else "--no-initial-controllers",
    }


def directory_id(cluster_id: str, node: int) -> str:
    """16 bytes in Kafka's base64, never with a leading dash (a command line would misread it)."""
    digest = hashlib.sha256(f"{cluster_id}/{node}".encode()).digest()
    return "A" + urlsafe_b64encode(digest[:16]).decode()[1:21] + "A"
