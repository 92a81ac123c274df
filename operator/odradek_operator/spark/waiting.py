"""Conditions of a pipeline's start: its clusters, users and declared topics. Does no I/O.

Used by the pipeline controller on Kubernetes and by the local runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_api.base import ClusterRef, Resource
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.kafka_user.status import KafkaUserStatus
from odradek_api.pipeline.job import clusters_of, users_of
from odradek_api.pipeline.outputs import outputs
from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_api.topic import TopicStatus


def waits_for(
    pipeline: Resource[SparkPipelineSpec],
    clusters: Mapping[str, KafkaClusterStatus],
    topics: Mapping[str, Mapping[str, TopicStatus]],
    users: Mapping[str, KafkaUserStatus],
) -> str:
    """The pending condition, in a sentence; empty if the pipeline can start.

    `users`: KafkaUsers by "namespace/name".
    `topics`: cluster → declared Topics. Topics that are not declared are checked by the driver.
    """
    spec = pipeline.spec
    if spec.suspend:
        return "spec.suspend is true"
    for key in sorted(clusters_of(spec, pipeline.namespace)):
        if key not in clusters:
            return f"KafkaCluster {key} does not exist"
        ready = {c.type: c.status for c in clusters[key].conditions}.get("Ready")
        if ready != "True" or not clusters[key].bootstrap_servers:
            return f"KafkaCluster {key} is not ready"
    for name in sorted(users_of(spec)):
        user = users.get(f"{pipeline.namespace}/{name}")
        if user is None:
            return f"KafkaUser {pipeline.namespace}/{name} does not exist"
        if "True" not in [c.status for c in user.conditions if c.type == "Ready"]:
            return f"KafkaUser {name} is not ready"
        if not user.secret.startswith(f"{pipeline.namespace}/"):
            return f"the Secret of KafkaUser {name} is {user.secret}, in another namespace"
    for ref, name in _topics(spec):
        if ref is None:
            continue
        declared = topics.get(ref.key(pipeline.namespace), {})
        for status in declared.values():
            ready = {c.type: c.status for c in status.conditions}.get("Ready")
            if status.topic_name == name and ready != "True":
                return f"Topic {name} is not ready"
    return ""


def _topics(spec: SparkPipelineSpec) -> list[tuple[ClusterRef | None, str]]:
    found = [(s.cluster or spec.cluster, t) for s in spec.sources for t in s.topics]
    found += [(lookup.cluster or spec.cluster, lookup.topic.name)
              for lookup in spec.lookups if lookup.topic is not None]  # fmt: skip
    for output in outputs(spec):
        if output.sink.topic is not None:
            found.append((output.sink.cluster or spec.cluster, output.sink.topic.name))
    if spec.dead_letter is not None:
        found.append((spec.cluster, spec.dead_letter.topic))
    return found
