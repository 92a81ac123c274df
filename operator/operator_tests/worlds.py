"""Helpers of the planner's tests: a cluster as text, and a simulator that carries out plans.

P("orders-0: 0 1 2 | 0 1")        replicas 0 1 2 (0 preferred), ISR 0 1, led by the first of it
P("orders-0: 0 1 2 | 0 1 @1")     … led by 1;  @- for no leader;  min=2 after it for min ISR
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from odradek_api.base import Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.parse import parse
from odradek_operator.kafka.desired import (
    ClusterLayout,
    DesiredCluster,
    DesiredTopic,
    Endpoint,
    Known,
    build,
    lay_out,
)
from odradek_operator.kafka.links import CONTROLLER_NAME, CONTROLLER_TLS_NAME, REPLICATION_NAME
from odradek_operator.kafka.observed import (
    BrokerSetting,
    LogDir,
    Observed,
    ObservedBroker,
    ObservedKafka,
    ObservedTopic,
    Partition,
    Phase,
)
from odradek_operator.kafka.security_settings import KeyStores
from odradek_protocol.ids import TopicPartition

NOW = 1_800_000_000.0
RACKS = ("a", "b", "c")
GB = 1 << 30
CONTROLLER_PORTS = {CONTROLLER_NAME: 9093, CONTROLLER_TLS_NAME: 9090}


def endpoints(layout: ClusterLayout) -> dict[int, Endpoint]:
    """Addresses as on Kubernetes; no process listens there."""
    return {node: _endpoint(node, layout) for node in {*layout.nodes, *range(16)}}


def _endpoint(node: int, layout: ClusterLayout) -> Endpoint:
    spec, links = layout.spec, layout.links
    ports = {one.kafka_name: one.port for one in spec.listener_list}
    if links.replication:
        ports[REPLICATION_NAME] = 9091
    dirs = tuple(f"/data/{n}" for n in range(spec.storage.volumes))
    return Endpoint(
        f"main-{node}:{ports[links.inter_broker]}",
        ",".join(f"{name}://:{port}" for name, port in ports.items()),
        ",".join(f"{name}://main-{node}:{port}" for name, port in ports.items()),
        f":{spec.metrics.port}",
        dirs,
        {name: f"main-{node}:{CONTROLLER_PORTS[name]}" for name in links.controllers},
        stores=KeyStores("/own", "/cluster-ca", "/clients-ca") if links.secured else None,
    )


def P(text: str) -> Partition:  # noqa: N802 (a literal, so to say)
    match = re.fullmatch(
        r"(\S+)-(\d+): ([\d ]+)\|([\d ]*)(?:@(\d+|-))?(?: *min=(\d+))?", text.strip()
    )
    assert match, text
    replicas = tuple(map(int, match[3].split()))
    isr = tuple(map(int, match[4].split()))
    leader = isr[0] if isr else -1
    if match[5]:
        leader = -1 if match[5] == "-" else int(match[5])
    return Partition(
        TopicPartition(match[1], int(match[2])), leader, replicas, frozenset(isr),
        int(match[6] or 2),
    )  # fmt: skip


def cluster(known: Known | None = None, annotations: Mapping[str, str] | None = None,
            **spec: Any) -> DesiredCluster:  # fmt: skip
    document = {
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "KafkaCluster",
        "metadata": {"name": "main", "annotations": dict(annotations or {})},
        "spec": spec,
    }
    resource: Resource[KafkaClusterSpec] | None = parse(document)
    assert resource is not None
    known = known or Known(cluster_id="id")
    layout = lay_out(resource, RACKS, known)
    return build(resource, layout, known, endpoints(layout))


DYNAMIC = ("log.cleaner.threads", "min.insync.replicas", "log.retention.ms")


def running(desired: DesiredCluster, *partitions: Partition, **kafka: Any) -> Observed:
    """The cluster as desired, with every broker ready."""
    brokers = {
        b.id: ObservedBroker(b.id, b.rack, Phase.READY, NOW - 100, b.settings)
        for b in desired.brokers.values()
    }
    racks = {b.id: b.rack for b in desired.brokers.values()}
    counts: dict[str, int] = {}
    for partition in partitions:
        counts[partition.id.topic] = counts.get(partition.id.topic, 0) + 1
    settings = {
        b.id: {
            name: BrokerSetting(value, read_only=name not in DYNAMIC)
            for name, value in b.properties.items()
        }
        | {n: BrokerSetting("1", read_only=False) for n in DYNAMIC if n not in b.properties}
        for b in desired.brokers.values()
    }
    described: dict[str, Any] = {
        "cluster_id": "id",
        "controller": min(desired.formation),
        "voters": frozenset(desired.formation),
        "registered": racks,
        "live": frozenset(racks),
        "partitions": tuple(partitions),
        "topics": {t: ObservedTopic(t, f"id-{t}", partitions=n) for t, n in counts.items()},
        "settings": settings,
        "log_dirs": {
            b.id: tuple(
                LogDir(d, False, 10 * GB, 5 * GB) for d in b.settings["log.dirs"].split(",")
            )
            for b in desired.brokers.values()
        },
    }
    controllers = {
        c.id: ObservedBroker(c.id, c.rack, Phase.READY, NOW - 100, c.settings)
        for c in desired.controllers.values()
    }
    return Observed(NOW, brokers, ObservedKafka(**{**described, **kafka}), controllers=controllers)


def with_phase(observed: Observed, phase: Phase, *brokers: int) -> Observed:
    nodes = {**observed.brokers, **observed.controllers}
    nodes |= {b: replace(nodes[b], phase=phase) for b in brokers}
    return replace(
        observed,
        brokers={b: nodes[b] for b in observed.brokers},
        controllers={c: nodes[c] for c in observed.controllers},
    )


def spread(topic: str, count: int, brokers: Sequence[int], factor: int = 3) -> list[Partition]:
    """Partitions over brokers in order: 0 1 2, 1 2 3, … all in sync, led by the first."""
    made = []
    for n in range(count):
        replicas = tuple(brokers[(n + k) % len(brokers)] for k in range(factor))
        made.append(Partition(TopicPartition(topic, n), replicas[0], replicas,
                              frozenset(replicas), max(1, factor - 1)))  # fmt: skip
    return made


def topic(name: str, **values: Any) -> DesiredTopic:
    return DesiredTopic(name, f"default/{name}", **values)
