"""The part of a SparkPipeline's spec that matters on Kubernetes only: image, pods, volumes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import FreeForm, NonEmpty, Spec

Memory = Annotated[str, Meta(pattern=r"^[0-9]+(k|m|g|t)$")]  # as Spark writes it


class Pod(Spec, frozen=True, kw_only=True):
    """Resources and placement of the driver's pod."""

    cores: Annotated[int, Meta(ge=1, le=256, description="CPU cores. Default: 1.")] = 1
    memory: Annotated[
        Memory,
        Meta(description="Memory of the JVM in Spark's notation, for example 512m. Default: 1g."),
    ] = "1g"
    memory_overhead: Annotated[
        Memory | None,
        Meta(
            description="Memory for Python and everything else outside the JVM, in Spark's "
            "notation. Default: 40 % of `memory`, at least 384m."
        ),
    ] = None
    core_request: Annotated[
        NonEmpty | None,
        Meta(description="CPU request as a Kubernetes quantity, for example 500m. Default: cores."),
    ] = None
    core_limit: Annotated[
        NonEmpty | None,
        Meta(description="CPU limit as a Kubernetes quantity, for example 2. Default: no limit."),
    ] = None
    labels: Annotated[FreeForm, Meta(description="Labels of the pod. Default: none.")] = field(
        default_factory=dict
    )
    annotations: Annotated[FreeForm, Meta(description="Annotations of the pod. Default: none.")] = (
        field(default_factory=dict)
    )
    node_selector: Annotated[
        FreeForm,
        Meta(description="Node labels that the pod requires, as in a pod's spec. Default: none."),
    ] = field(default_factory=dict)
    tolerations: Annotated[
        list[FreeForm],
        Meta(max_length=50, description="Tolerations, as in a pod's spec. Default: none."),
    ] = field(default_factory=list)
    env: Annotated[
        list[FreeForm],
        Meta(
            max_length=100,
            description="Environment variables, as in a container's spec, for example from a "
            "Secret. Default: none.",
        ),
    ] = field(default_factory=list)


class Executors(Pod, frozen=True, kw_only=True):
    """Resources and placement of the executors' pods, and how many there are."""

    instances: Annotated[
        int, Meta(ge=1, le=10_000, description="Number of executors. Default: 1.")
    ] = 1


class DynamicAllocation(Spec, frozen=True, kw_only=True):
    """Lets Spark add and remove executors with the load."""

    enabled: Annotated[
        bool, Meta(description="Use Spark's dynamic allocation. Default: false.")
    ] = False
    initial_executors: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Executors at the start. Default: Spark's own (minExecutors)."),
    ] = None
    min_executors: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Executors that are always kept. Default: Spark's own (0)."),
    ] = None
    max_executors: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Executors, at most. Default: Spark's own (no limit)."),
    ] = None


class PipelineStorage(Spec, frozen=True, kw_only=True):
    """The claim of a pipeline that runs in one pod, for its checkpoint and tables."""

    size: Annotated[NonEmpty, Meta(description="Size as a Kubernetes quantity. Default: 5Gi.")] = (
        "5Gi"
    )
    storage_class: Annotated[
        NonEmpty | None, Meta(description="StorageClass. Default: the cluster's default.")
    ] = None
    delete_claim: Annotated[
        bool,
        Meta(
            description="Delete the claim, with checkpoint and tables, when the pipeline is "
            "deleted. Default: false."
        ),
    ] = False


class Kubernetes(Spec, frozen=True, kw_only=True):
    """How the pipeline runs on Kubernetes."""

    image: Annotated[
        NonEmpty | None,
        Meta(
            description="Container image of driver and executors. Default: the operator's default "
            "Spark image."
        ),
    ] = None
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"],
        Meta(description="When the image is pulled. Default: IfNotPresent."),
    ] = "IfNotPresent"
    image_pull_secrets: Annotated[
        list[NonEmpty],
        Meta(
            max_length=20,
            description="Names of Secrets with registry credentials. Default: none.",
        ),
    ] = field(default_factory=list)
    driver: Annotated[
        Pod, Meta(description="Resources and placement of the driver. Default: 1 core, 1g.")
    ] = field(default_factory=Pod)
    executor: Annotated[
        Executors | None,
        Meta(
            description="Resources, placement and number of executors. Default: none, unless "
            "dynamicAllocation is enabled; the driver's pod does all the work."
        ),
    ] = None
    dynamic_allocation: Annotated[
        DynamicAllocation,
        Meta(description="Lets Spark add and remove executors with the load. Default: off."),
    ] = field(default_factory=DynamicAllocation)
    volume_claim: Annotated[
        NonEmpty | None,
        Meta(
            description="PersistentVolumeClaim for checkpoint and tables, mounted at /data. "
            "Default: a claim of the pipeline's own, <name>-data, if it runs in one pod; with "
            "executors checkpoint and table need a shared claim, or a store such as s3a://."
        ),
    ] = None
    storage: Annotated[
        PipelineStorage,
        Meta(description="The claim of the pipeline's own. Default: 5Gi, kept."),
    ] = field(default_factory=PipelineStorage)
    files: Annotated[
        NonEmpty | None,
        Meta(
            description="ConfigMap with the Python files of the steps, or the project of sdp. "
            "Default: none."
        ),
    ] = None
    service_account: Annotated[
        NonEmpty | None,
        Meta(
            description="ServiceAccount of the driver. Default: the operator creates "
            "<name>-driver with the rights that Spark needs."
        ),
    ] = None
    time_to_live_seconds: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Seconds after which an ended SparkApplication is deleted. Default: it is "
            "kept."
        ),
    ] = None

    @property
    def one_pod(self) -> bool:
        """The driver does all the work, with as many threads as it has cores."""
        return self.executor is None and not self.dynamic_allocation.enabled
