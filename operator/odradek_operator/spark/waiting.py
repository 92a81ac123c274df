"""What a pipeline waits for before it starts: its clusters and declared topics. Does no I/O.

Used by the pipeline controller on Kubernetes and by the local runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_api.base import ClusterRef, Resource
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_api.pipeline.job import clusters_of
from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_api.topic import TopicStatus


def waits_for(
    pipeline: Resource[SparkPipelineSpec],
    clusters: Mapping[str, KafkaClusterStatus],
    topics: Mapping[str, Mapping[str, TopicStatus]],
) -> str:
    """What the pipeline waits for, in a sentence; empty if it can start.

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
    if spec.sink.topic is not None:
        found.append((spec.sink.cluster or spec.cluster, spec.sink.topic.name))
    if spec.dead_letter is not None:
        found.append((spec.cluster, spec.dead_letter.topic))
    return found
