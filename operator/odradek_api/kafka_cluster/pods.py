"""Parts of a KafkaCluster's spec that shape its pods, in the words of a Kubernetes pod's spec."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from odradek_api.base import FreeForm, Spec


class Resources(Spec, frozen=True, kw_only=True):
    """CPU and memory of a container, as in a pod's spec."""

    requests: Annotated[
        FreeForm,
        Meta(
            description='Requested resources, for example {cpu: "1", memory: 2Gi}. Default: none.'
        ),
    ] = field(default_factory=dict)
    limits: Annotated[
        FreeForm,
        Meta(
            description="Resource limits, for example {memory: 4Gi}. Engine apache uses half of "
            "the memory limit as the JVM's heap. Default: none."
        ),
    ] = field(default_factory=dict)


class PodTemplate(Spec, frozen=True, kw_only=True):
    """Additions to the pods of brokers and controllers. A change restarts them one by one."""

    labels: Annotated[FreeForm, Meta(description="Labels of the pods. Default: none.")] = field(
        default_factory=dict
    )
    annotations: Annotated[
        FreeForm, Meta(description="Annotations of the pods. Default: none.")
    ] = field(default_factory=dict)
    node_selector: Annotated[
        FreeForm,
        Meta(description="Node labels that the pods require, as in a pod's spec. Default: none."),
    ] = field(default_factory=dict)
    tolerations: Annotated[
        list[FreeForm],
        Meta(max_length=50, description="Tolerations, as in a pod's spec. Default: none."),
    ] = field(default_factory=list)
    affinity: Annotated[
        FreeForm,
        Meta(
            description="Affinity, as in a pod's spec. The operator adds the node affinity to the "
            "broker's rack. Default: none."
        ),
    ] = field(default_factory=dict)
    security_context: Annotated[
        FreeForm,
        Meta(
            description="Fields that override the pod's securityContext. Default: a non-root user "
            "(10001) with the RuntimeDefault seccomp profile."
        ),
    ] = field(default_factory=dict)
    image_pull_secrets: Annotated[
        list[str],
        Meta(
            max_length=20,
            description="Names of Secrets with registry credentials. Default: none.",
        ),
    ] = field(default_factory=list)
    priority_class_name: Annotated[
        str | None, Meta(description="PriorityClass of the pods. Default: none.")
    ] = None
    termination_grace_period_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description="Seconds that a broker has to hand over its leaders and stop before it is "
            "killed. Default: 60.",
        ),
    ] = 60
    env: Annotated[
        FreeForm,
        Meta(
            description="Environment variables of the container as name: value, for example "
            '{KAFKA_HEAP_OPTS: "-Xmx2g"}. Default: none.'
        ),
    ] = field(default_factory=dict)
    volumes: Annotated[
        list[FreeForm],
        Meta(
            max_length=20,
            description="Additional volumes, as in a pod's spec. When a Secret among them changes, "
            "the pods are restarted one by one. Default: none.",
        ),
    ] = field(default_factory=list)
    volume_mounts: Annotated[
        list[FreeForm],
        Meta(
            max_length=20,
            description="Mounts of the additional volumes, as in a container's spec. Default: "
            "none.",
        ),
    ] = field(default_factory=list)
