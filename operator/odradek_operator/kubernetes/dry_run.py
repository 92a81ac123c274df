"""The changes that manifests would make on Kubernetes: `odradek plan --kubernetes -f dir`.

    for found in dry_run(client, load([path]), OperatorOptions().image_of):
        found.key, found.lines    # "default/main", ["restart broker 0: …", "create Service …"]

    kubectl exec -i deploy/odradek-operator -- \\
        python3 -m odradek_operator.main plan < cluster.yaml

It observes and plans like a pass of the operator, with the manifests in place of the resources at
the API server; nothing is written. Kafka has to be reachable, which it is from the operator's pod
and usually not from a laptop: then the plan says so and has only what Kubernetes alone shows.
"""

from __future__ import annotations

import sys
import time
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
from odradek_api.kafka_rebalance.rules import rebalance_cluster
from odradek_api.kafka_rebalance.spec import KafkaRebalanceSpec
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_api.parse import STDIN, load, parse, refused_changes
from odradek_api.topic import topic_cluster
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kafka.desired import accepts, build_topic
from odradek_operator.kafka.explain import explain
from odradek_operator.kafka.rebalance_states import wanted_of
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.certificates import ClusterCertificates
from odradek_operator.kubernetes.cluster_worker import record_of
from odradek_operator.kubernetes.nodes import Nodes
from odradek_operator.kubernetes.objects import KafkaRebalance, Topic, get, plain, read_status
from odradek_operator.kubernetes.operator import OperatorOptions
from odradek_operator.kubernetes.platform import KubernetesPlatform
from odradek_operator.kubernetes.rebalance_book import RebalanceBook, rebalance_object
from odradek_operator.kubernetes.rebalance_controller import ConfigMapDocuments
from odradek_operator.kubernetes.topic_book import TopicObject, topic_object
from odradek_operator.reconcile.kafka import assess
from odradek_operator.reconcile.rebalances import Item, RebalanceKeeper

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
    """One result for every KafkaCluster of the manifests, and of their Topics and rebalances."""
    clusters = {r.key: r for r in resources if r.kind == "KafkaCluster"}
    topics = [r for r in resources if r.kind == "Topic"]
    rebalances = [r for r in resources if r.kind == "KafkaRebalance"]
    nodes = _nodes(client)
    others = [*map(topic_cluster, topics), *map(rebalance_cluster, rebalances)]
    for key in dict.fromkeys([*clusters, *others]):
        own = [topic for topic in topics if topic_cluster(topic) == key]
        own += [one for one in rebalances if rebalance_cluster(one) == key]
        admin = make_admin()
        try:
            yield _one(client, key, clusters.get(key), own, nodes, image, admin)
        finally:
            admin.close()


def _one(
    client: Client,
    key: str,
    wanted: Resource[KafkaClusterSpec] | None,
    declared: Sequence[Resource[Any]],
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
    if problem := platform.conflict():
        return DryRun(key, [f"refuse: spec.listeners: {problem}"])
    certificates = ClusterCertificates(client, resource)
    certificates.connect(resource, platform, admin)
    existing = _existing_topics(client, resource)
    topics = [one for one in declared if one.kind == "Topic"]
    asked = {t.key: t for t in [*(o.resource for o in existing if o.resource), *topics]}
    refused = [t for t in asked.values() if not accepts(resource, t)]
    usable = [build_topic(t) for t in asked.values() if t not in refused]
    record = record_of(before, existing)
    keeper = _rebalances(client, resource, [o for o in declared if o.kind == "KafkaRebalance"])
    names_of = sorted(set(racks.values()))
    assessed = assess(resource, usable, names_of, platform, record, admin, keeper)
    certified = certificates.assess(assessed.desired, platform)
    lines = certified.lines if certified else []
    lines += [explain(action) for action in assessed.plan]
    lines += [line for one in keeper.assessed for line in one.lines]
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


def _rebalances(
    client: Client,
    cluster: Resource[KafkaClusterSpec],
    declared: Sequence[Resource[KafkaRebalanceSpec]],
) -> RebalanceKeeper:
    """As declared, or as they are at the API server; with the status that they have there."""
    book = RebalanceBook()
    found = [plain(one) for one in client.list(KafkaRebalance, namespace=cluster.namespace)]
    there = {o.key: o for o in map(rebalance_object, found) if o.cluster == cluster.key}
    for one in found:
        book.put(one)
    items = {key: Item(o.wanted, o.status) for key, o in there.items()}
    for resource in declared:
        before = items.get(resource.key)
        status = before.status if before else KafkaRebalanceStatus()
        items[resource.key] = Item(wanted_of(resource), status)
    keeper = RebalanceKeeper(ConfigMapDocuments(client, book), sleep=time.sleep)
    keeper.begin(items.values())
    return keeper


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


def print_plan(options: OperatorOptions) -> int:
    """Plans manifests from standard input, with the images and rights of the operator's pod."""
    try:
        for found in dry_run(Client(), load([STDIN]), options.image_of):
            print(as_text(found))
    except (InvalidManifestError, ApiError, httpx2.HTTPError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
