"""The objects of a SparkPipeline: a ConfigMap with its job, and a SparkApplication. Does no I/O.

The SparkApplication has the schema of `sparkoperator.k8s.io/v1beta2`, so kubeflow's Spark operator
can run it; without one, ours does (kubernetes/application_controller.py).

The name of the ConfigMap contains a digest of the job: a changed job changes the SparkApplication's
spec, and so it is started again, from its checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from odradek_api.base import GROUP, Resource, settings_text
from odradek_api.pipeline.job import Job
from odradek_api.pipeline.pods import Executors, Pod
from odradek_api.pipeline.spec import RestartPolicy, SparkPipelineSpec

Object = dict[str, Any]

API_VERSION = "sparkoperator.k8s.io/v1beta2"
KIND = "SparkApplication"
SPARK_VERSION = "4.0.0"
PIPELINE_LABEL = f"{GROUP}/pipeline"
RUN_KEY = "spark.odradek.run"  # in sparkConf: the scheduled time of the run
MAIN_FILE = "local:///opt/odradek/odradek_spark/main.py"
JOB_DIR, FILES_DIR, DATA_DIR = "/etc/odradek/job", "/etc/odradek/files", "/data"
USER_ID = 10001
RETRIES_MAX = 2_147_483_647  # for a spec without `retries`; the largest int32


def job_of(
    pipeline: Resource[SparkPipelineSpec], clusters: Mapping[str, str], topology_key: str
) -> Job:
    """`clusters`: "default/main" → bootstrap servers. Executors in one zone read from that rack."""
    spec = pipeline.spec
    rack = spec.kubernetes.executor.node_selector.get(topology_key, "")
    return Job(
        name=pipeline.name,
        namespace=pipeline.namespace,
        spec=spec,
        clusters=dict(clusters),
        checkpoint=f"{DATA_DIR}/checkpoints/{pipeline.namespace}/{pipeline.name}",
        directory=FILES_DIR,
        client_rack=str(rack),
    )


def unusable(spec: SparkPipelineSpec) -> str:
    """Why a spec that is valid on one machine cannot work on Kubernetes; empty if it can."""
    if spec.kubernetes.volume_claim is not None:
        return ""
    checkpoint = spec.checkpoint or ""
    if spec.mode != "batch" and "://" not in checkpoint:
        return (
            "spec.checkpoint: driver and executors must share it: set "
            "spec.kubernetes.volumeClaim, or a checkpoint such as s3a://bucket/path"
        )
    if spec.sink.table is not None and "://" not in spec.sink.table.path:
        return (
            "spec.sink.table.path: driver and executors must share it: set "
            "spec.kubernetes.volumeClaim, or a path such as s3a://bucket/path"
        )
    return ""


def config_map(pipeline: Resource[SparkPipelineSpec], job: Job, owner: Object) -> Object:
    text = msgspec.json.encode(job, order="deterministic").decode()
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    made = _object("v1", "ConfigMap", f"{pipeline.name}-job-{digest}", pipeline, owner)
    return {**made, "data": {"job.json": text}, "immutable": True}


def application(
    pipeline: Resource[SparkPipelineSpec], config: str, image: str, owner: Object, run: str = ""
) -> Object:
    """The SparkApplication; `config` is the ConfigMap with the job.

    `run`: the scheduled time, if there is a schedule. It is part of the spec, so each run is a new
    submission.
    """
    spec, pods = pipeline.spec, pipeline.spec.kubernetes
    conf = settings_text(spec.spark_conf)
    if run:
        conf[RUN_KEY] = run
    made: Object = {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "image": pods.image or image,
        "imagePullPolicy": pods.image_pull_policy,
        "mainApplicationFile": MAIN_FILE,
        "arguments": [f"{JOB_DIR}/job.json"],
        "sparkVersion": SPARK_VERSION,
        "sparkConf": conf,
        "restartPolicy": _restart_policy(spec.restart_policy),
        "suspend": spec.suspend,
        "volumes": _volumes(spec, config),
        "driver": _driver(pipeline),
        "executor": _executor(pipeline),
    }
    if pods.image_pull_secrets:
        made["imagePullSecrets"] = list(pods.image_pull_secrets)
    if pods.time_to_live_seconds is not None:
        made["timeToLiveSeconds"] = pods.time_to_live_seconds
    if pods.dynamic_allocation.enabled:
        own = msgspec.to_builtins(pods.dynamic_allocation)
        made["dynamicAllocation"] = {
            **{name: value for name, value in own.items() if value is not None},
            "shuffleTrackingEnabled": True,  # instead of an external shuffle service
        }
    return {**_object(API_VERSION, KIND, pipeline.name, pipeline, owner), "spec": made}


def _object(
    api_version: str, kind: str, name: str, pipeline: Resource[SparkPipelineSpec], owner: Object
) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": pipeline.namespace,
            "labels": {PIPELINE_LABEL: pipeline.name},
            "ownerReferences": [owner],
        },
    }


def _restart_policy(policy: RestartPolicy) -> Object:
    """In kubeflow's policy, retries count over the life of an application, not in a row."""
    made: Object = {"type": policy.type}
    if policy.type != "Never":
        retries = RETRIES_MAX if policy.retries is None else policy.retries
        made |= {
            "onFailureRetries": retries,
            "onFailureRetryInterval": policy.interval_seconds,
            "onSubmissionFailureRetries": retries,
            "onSubmissionFailureRetryInterval": policy.interval_seconds,
        }
    return made


def _volumes(spec: SparkPipelineSpec, config: str) -> list[Object]:
    volumes: list[Object] = [
        {"name": "job", "configMap": {"name": config}},
        {"name": "tmp", "emptyDir": {}},  # the root file system is read-only
    ]
    if spec.kubernetes.files is not None:
        volumes.append({"name": "files", "configMap": {"name": spec.kubernetes.files}})
    if spec.kubernetes.volume_claim is not None:
        claim = {"claimName": spec.kubernetes.volume_claim}
        volumes.append({"name": "data", "persistentVolumeClaim": claim})
    return volumes


def _driver(pipeline: Resource[SparkPipelineSpec]) -> Object:
    pods = pipeline.spec.kubernetes
    mounts = [{"name": "job", "mountPath": JOB_DIR, "readOnly": True}]
    if pods.files is not None:
        mounts.append({"name": "files", "mountPath": FILES_DIR, "readOnly": True})
    made = _pod(pipeline, pods.driver)
    made["volumeMounts"] = mounts + _written(pipeline.spec)
    made["serviceAccount"] = pods.service_account or f"{pipeline.name}-driver"
    return made


def _executor(pipeline: Resource[SparkPipelineSpec]) -> Object:
    executor: Executors = pipeline.spec.kubernetes.executor
    made = {**_pod(pipeline, executor), "instances": executor.instances}
    made["volumeMounts"] = _written(pipeline.spec)
    return made


def _written(spec: SparkPipelineSpec) -> list[Object]:
    """Mounts that a pod can write to."""
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    if spec.kubernetes.volume_claim is not None:
        mounts.append({"name": "data", "mountPath": DATA_DIR})
    return mounts


def _pod(pipeline: Resource[SparkPipelineSpec], pod: Pod) -> Object:
    made: Object = {
        "cores": pod.cores,
        "memory": pod.memory,
        "labels": {**pod.labels, PIPELINE_LABEL: pipeline.name},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    optional = {
        "memoryOverhead": pod.memory_overhead,
        "coreRequest": pod.core_request,
        "coreLimit": pod.core_limit,
        "annotations": pod.annotations,
        "nodeSelector": pod.node_selector,
        "tolerations": pod.tolerations,
        "env": pod.env,
    }
    return made | {name: value for name, value in optional.items() if value}
