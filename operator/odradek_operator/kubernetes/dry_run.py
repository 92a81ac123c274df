"""What applying manifests would change on Kubernetes: `odradek plan --kubernetes -f dir`.

    for found in dry_run(client, load([path]), Options().image_of):
        found.key, found.lines    # "default/main", ["restart broker 0: …", "create Service …"]

    kubectl exec -i deploy/odradek-operator -- \\
        python3 -m odradek_operator.main plan < cluster.yaml

It observes and plans like a pass of the operator, with the manifests in place of the resources at
the API server; nothing is written. Kafka has to be reachable, which it is from the operator's pod
and usually not from a laptop: then the plan says so and has only what Kubernetes alone shows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node

from odradek_api.base import InvalidManifestError, Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.parse import STDIN, load, parse, refused_changes
from odradek_api.topic import TopicSpec, topic_cluster
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kafka.desired import accepts, build_topic
from odradek_operator.kafka.explain import explain
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.cluster_worker import record_of
from odradek_operator.kubernetes.nodes import Nodes
from odradek_operator.kubernetes.objects import Topic, get, plain, read_status
from odradek_operator.kubernetes.operator import Options
from odradek_operator.kubernetes.platform import KubernetesPlatform
from odradek_operator.kubernetes.topic_book import TopicObject, topic_object
from odradek_operator.reconcile.kafka import assess

NEW_UID = "00000000-0000-0000-0000-000000000000"  # the uid of a cluster that does not exist yet
FORBIDDEN = 403


@dataclass(frozen=True)
class DryRun:
    key: str
    lines: list[str] = field(default_factory=list)
    reached: bool = True  # False: its brokers are running but cannot be reached from here


def dry_run(
    client: Client,
    resources: Sequence[Resource[Any]],
    image: Callable[[KafkaClusterSpec], str],
    make_admin: Callable[[], KafkaAdmin] = lambda: KafkaAdmin(""),
) -> Iterator[DryRun]:
    """One result for every KafkaCluster of the manifests, and for clusters of their Topics."""
    clusters = {r.key: r for r in resources if r.kind == "KafkaCluster"}
    topics = [r for r in resources if r.kind == "Topic"]
    nodes = _nodes(client)
    for key in dict.fromkeys([*clusters, *map(topic_cluster, topics)]):
        own = [topic for topic in topics if topic_cluster(topic) == key]
        admin = make_admin()
        try:
            yield _one(client, key, clusters.get(key), own, nodes, image, admin)
        finally:
            admin.close()


def _one(
    client: Client,
    key: str,
    wanted: Resource[KafkaClusterSpec] | None,
    topics: Sequence[Resource[TopicSpec]],
    nodes: Nodes,
    image: Callable[[KafkaClusterSpec], str],
    admin: KafkaAdmin,
) -> DryRun:
    document = get(client, "KafkaCluster", key)
    found = parse(document) if document else None
    base = wanted or found
    if base is None:
        return DryRun(key, [f"refuse: KafkaCluster {key} does not exist"])
    if found is not None and (no := refused_changes(base, found)):
        raise InvalidManifestError(no)
    resource: Resource[KafkaClusterSpec] = replace(base, uid=found.uid if found else NEW_UID)
    if problem := names.unusable(resource.name):
        return DryRun(key, [f"refuse: metadata.name: {problem}"])
    before = read_status(document or {}, KafkaClusterStatus)
    racks = nodes.values(resource.spec.racks.topology_key)
    platform = KubernetesPlatform(client, resource, before, image, node_racks=racks)
    platform.refresh()
    admin.bootstrap = platform.bootstrap()
    existing = _existing_topics(client, resource)
    asked = {t.key: t for t in [*(o.resource for o in existing if o.resource), *topics]}
    refused = [t for t in asked.values() if not accepts(resource, t)]
    usable = [build_topic(t) for t in asked.values() if t not in refused]
    record = record_of(before, existing)
    assessed = assess(resource, usable, sorted(set(racks.values())), platform, record, admin)
    lines = [explain(action) for action in assessed.plan]
    lines += [
        f"refuse {t.key}: KafkaCluster {key} does not list namespace {t.namespace}" for t in refused
    ]
    lines += platform.differences(assessed.desired)
    observed = assessed.observed
    return DryRun(key, lines, observed.kafka is not None or not observed.brokers)


def _existing_topics(client: Client, cluster: Resource[KafkaClusterSpec]) -> list[TopicObject]:
    """The cluster's Topics; only of its own namespace if others may not be read."""
    found: list[Any] = []
    for namespace in ("*", cluster.namespace):
        try:
            found = [plain(one) for one in client.list(Topic, namespace=namespace)]
            break
        except ApiError as error:
            if error.status.code != FORBIDDEN:
                raise
    return [o for o in map(topic_object, found) if o.cluster == cluster.key]


def _nodes(client: Client) -> Nodes:
    nodes = Nodes()
    try:
        nodes.replace_all(node.to_dict() for node in client.list(Node))
    except ApiError as error:
        if error.status.code != FORBIDDEN:
            raise
    return nodes


def as_text(found: DryRun) -> str:
    lines = [f"KafkaCluster {found.key}:" + ("" if found.lines else " nothing to do")]
    lines += [f"  {line}" for line in found.lines]
    if not found.reached:
        lines.append("  (its brokers cannot be reached from here: run this in the operator's pod)")
    return "\n".join(lines)


def print_plan(options: Options) -> int:
    """Plans manifests from standard input, with the images and rights of the operator's pod."""
    try:
        for found in dry_run(Client(), load([STDIN]), options.image_of):
            print(as_text(found))
    except (InvalidManifestError, ApiError, httpx2.HTTPError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
