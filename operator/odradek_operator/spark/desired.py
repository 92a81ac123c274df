"""The objects of a SparkPipeline: a ConfigMap with its job, and a SparkApplication. Does no I/O.

The SparkApplication has the schema of `sparkoperator.k8s.io/v1beta2`, so kubeflow's Spark operator
can run it; without one, ours does (kubernetes/application_controller.py).

The name of the ConfigMap contains a digest of the job: a changed job changes the SparkApplication's
spec, and so it is started again, from its checkpoint.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping
from typing import Any

import msgspec

from odradek_api.base import GROUP, RESTART_ANNOTATION, Resource, settings_text
from odradek_api.pipeline.job import Job, users_of
from odradek_api.pipeline.outputs import outputs
from odradek_api.pipeline.pods import Executors, Pod
from odradek_api.pipeline.spec import RestartPolicy, SparkPipelineSpec

Object = dict[str, Any]

API_VERSION = "sparkoperator.k8s.io/v1beta2"
KIND = "SparkApplication"
SPARK_VERSION = "4.2.0"
PIPELINE_LABEL = f"{GROUP}/pipeline"
RUN_KEY = "spark.odradek.run"  # in sparkConf: the scheduled time of the run
MAIN_FILE = "local:///opt/odradek/odradek_spark/main.py"
JOB_DIR, FILES_DIR, DATA_DIR = "/etc/odradek/job", "/etc/odradek/files", "/data"
USERS_DIR = "/etc/odradek/users"
USER_ID = 10001
TASK_ATTEMPTS = 8  # in one pod; a broker's restart must not fail the pipeline
# Spark 4.2 submits a NetworkPolicy with the driver, for which kubeflow's operator has no right.
LEFT_OUT = {
    "spark.kubernetes.driver.pod.excludedFeatureSteps": (
        "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
    )
}
RETRIES_MAX = 2_147_483_647  # for a spec without `retries`; the largest int32


def job_of(
    pipeline: Resource[SparkPipelineSpec], clusters: Mapping[str, str], topology_key: str
) -> Job:
    """`clusters`: "default/main" → bootstrap servers. Executors in one zone read from that rack."""
    spec, pods = pipeline.spec, pipeline.spec.kubernetes
    readers = pods.driver if pods.one_pod else pods.executor or Executors()
    rack = readers.node_selector.get(topology_key, "")
    return Job(
        name=pipeline.name,
        namespace=pipeline.namespace,
        spec=msgspec.structs.replace(spec, tests=[]),  # a changed test is no reason to restart
        clusters=dict(clusters),
        users={name: f"{USERS_DIR}/{name}" for name in sorted(users_of(spec))},
        checkpoint=f"{DATA_DIR}/checkpoints/{pipeline.namespace}/{pipeline.name}",
        directory=FILES_DIR,
        data=DATA_DIR,
        master=local_master(spec),
        client_rack=str(rack),
    )


def local_master(spec: SparkPipelineSpec) -> str | None:
    """Spark's master for one pod, whose failed tasks are repeated; None: Kubernetes, executors."""
    if not spec.kubernetes.one_pod:
        return None
    return f"local[{spec.kubernetes.driver.cores},{TASK_ATTEMPTS}]"


def unusable(spec: SparkPipelineSpec) -> str:
    """Why a spec that is valid on one machine cannot work on Kubernetes; empty if it can."""
    if spec.sdp is not None and not spec.sdp.path.startswith("/"):
        if spec.kubernetes.files is None:
            return (
                "spec.sdp.path: set spec.kubernetes.files to a ConfigMap with the project's files, "
                "or an absolute path of a directory in the image"
            )
        if ".." in spec.sdp.path.split("/"):
            return "spec.sdp.path: must not contain .. on Kubernetes"
    if spec.kubernetes.volume_claim is not None or spec.kubernetes.one_pod:
        return ""
    for at in _on_disk(spec):
        return (
            f"{at}: driver and executors must share it: set spec.kubernetes.volumeClaim, or a "
            "path such as s3a://bucket/path; or remove spec.kubernetes.executor (and "
            "dynamicAllocation), and one pod with a claim of its own does all the work"
        )
    return ""


def _on_disk(spec: SparkPipelineSpec) -> list[str]:
    """Fields of the spec, given or not, that mean directories of a pod."""
    found = []
    if spec.mode != "batch" and "://" not in (spec.checkpoint or ""):
        found.append("spec.checkpoint")
    for output in outputs(spec):
        if output.sink.table is not None and "://" not in output.sink.table.path:
            found.append(f"spec.{output.at}.table.path")
    return found


def claim_name(pipeline: Resource[SparkPipelineSpec]) -> str | None:
    """The claim that is mounted at /data; None if the pipeline keeps nothing on a disk."""
    if pipeline.spec.kubernetes.volume_claim is not None:
        return pipeline.spec.kubernetes.volume_claim
    return f"{pipeline.name}-data" if _on_disk(pipeline.spec) else None


def own_claim(pipeline: Resource[SparkPipelineSpec], owner: Object) -> Object | None:
    """The claim that the operator creates for a pipeline in one pod.

    Without an owner it outlives the pipeline: it has the user's tables.
    """
    spec, storage = pipeline.spec, pipeline.spec.kubernetes.storage
    name = claim_name(pipeline)
    if name is None or name == spec.kubernetes.volume_claim:
        return None
    made = _object("v1", "PersistentVolumeClaim", name, pipeline, owner)
    if not storage.delete_claim:
        del made["metadata"]["ownerReferences"]
    wanted: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.storage_class is not None:
        wanted["storageClassName"] = storage.storage_class
    return {**made, "spec": wanted}


def config_map(pipeline: Resource[SparkPipelineSpec], job: Job, owner: Object) -> Object:
    text = msgspec.json.encode(_without_new_fields(job)).decode()
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    made = _object("v1", "ConfigMap", f"{pipeline.name}-job-{digest}", pipeline, owner)
    return {**made, "data": {"job.json": text}, "immutable": True}


# Fields that jobs of earlier versions did not have, with their defaults.
_NEW_IN_SPEC: Object = {"sdp": None, "user": None, "tests": [], "sinks": [], "lookups": [],
                        "batchTarget": None, "consumerGroup": None}  # fmt: skip
_NEW_IN_SOURCE: Object = {"user": None, "table": None, "tombstones": False}
_NEW_IN_TABLE: Object = {"format": "parquet", "key": [], "deleteWhen": None, "order": "_offset"}


def _without_new_fields(job: Job) -> Object:
    """The job without new fields that are not set: otherwise an upgrade of the operator would
    restart every pipeline."""
    made: Object = msgspec.to_builtins(job, order="deterministic")
    spec = made["spec"]
    parts: list[tuple[Object, Object]] = [
        (spec, _NEW_IN_SPEC),
        (spec["sink"], {"user": None}),
        (made, {"users": {}}),
    ]
    parts += [(source, _NEW_IN_SOURCE) for source in spec["sources"]]
    if spec["sink"]["table"] is not None:
        parts.append((spec["sink"]["table"], _NEW_IN_TABLE))
    for part, new in parts:
        for name, default in new.items():
            if part[name] == default:
                del part[name]
    return made


def application(
    pipeline: Resource[SparkPipelineSpec],
    config: str,
    image: str,
    owner: Object,
    run: str = "",
    secrets: Mapping[str, str] | None = None,
) -> Object:
    """The SparkApplication; `config` is the ConfigMap with the job.

    `secrets`: KafkaUser → name of its Secret. It is mounted; its content is never part of this.

    `run`: the scheduled time, if there is a schedule. It is part of the spec, so each run is a new
    submission.
    """
    spec, pods = pipeline.spec, pipeline.spec.kubernetes
    conf = settings_text(spec.spark_conf)
    if (master := local_master(spec)) is not None:
        conf["spark.master"] = master
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
        "volumes": [*_volumes(pipeline, config), *_user_volumes(spec, secrets or {})],
        "driver": _driver(pipeline),
        "executor": _executor(pipeline),
    }
    if (asked := pipeline.annotations.get(RESTART_ANNOTATION)) is not None:
        driver = made["driver"]
        known = driver.get("annotations", {})
        made["driver"] = {**driver, "annotations": {**known, RESTART_ANNOTATION: asked}}
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


def for_kubeflow(made: Object) -> Object:
    """The SparkApplication as kubeflow's operator needs it. Ours sets these fields by itself.

    Version 2.3 does not know `suspend`; the pipeline controller deletes the application instead.
    """
    spec = {name: value for name, value in made["spec"].items() if name != "suspend"}
    spec["sparkConf"] = LEFT_OUT | spec["sparkConf"]
    for role in ("driver", "executor"):
        spec[role] = {**spec[role], "podSecurityContext": {"fsGroup": USER_ID}}
    spec["driver"]["env"] = [
        *spec["driver"].get("env", ()),
        _field("ODRADEK_POD_NAME", "metadata.name"),
        _field("ODRADEK_POD_NAMESPACE", "metadata.namespace"),
    ]
    return {**made, "spec": spec}


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


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


def _volumes(pipeline: Resource[SparkPipelineSpec], config: str) -> list[Object]:
    spec = pipeline.spec
    volumes: list[Object] = [
        {"name": "job", "configMap": {"name": config}},
        {"name": "tmp", "emptyDir": {}},  # the root file system is read-only
    ]
    if spec.kubernetes.files is not None:
        volumes.append({"name": "files", "configMap": {"name": spec.kubernetes.files}})
    if (claim := claim_name(pipeline)) is not None:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": claim}})
    return volumes


def _user_volumes(spec: SparkPipelineSpec, secrets: Mapping[str, str]) -> list[Object]:
    return [
        {"name": f"user-{n}", "secret": {"secretName": secrets.get(name, name)}}
        for n, name in enumerate(sorted(users_of(spec)))
    ]


def _user_mounts(spec: SparkPipelineSpec) -> list[Object]:
    return [
        {"name": f"user-{n}", "mountPath": f"{USERS_DIR}/{name}", "readOnly": True}
        for n, name in enumerate(sorted(users_of(spec)))
    ]


def _driver(pipeline: Resource[SparkPipelineSpec]) -> Object:
    pods = pipeline.spec.kubernetes
    mounts = [{"name": "job", "mountPath": JOB_DIR, "readOnly": True}]
    if pods.files is not None:
        mounts.append({"name": "files", "mountPath": _files_dir(pipeline.spec), "readOnly": True})
    made = _pod(pipeline, pods.driver)
    made["volumeMounts"] = mounts + _user_mounts(pipeline.spec) + _written(pipeline)
    made["serviceAccount"] = pods.service_account or f"{pipeline.name}-driver"
    return made


def _files_dir(spec: SparkPipelineSpec) -> str:
    """Where the ConfigMap is mounted: a project where its relative path leads to."""
    if spec.sdp is None or spec.sdp.path.startswith("/"):
        return FILES_DIR
    return posixpath.normpath(f"{FILES_DIR}/{spec.sdp.path}")


def _executor(pipeline: Resource[SparkPipelineSpec]) -> Object:
    executor = pipeline.spec.kubernetes.executor or Executors()
    made = {**_pod(pipeline, executor), "instances": executor.instances}
    made["volumeMounts"] = _user_mounts(pipeline.spec) + _written(pipeline)
    return made


def _written(pipeline: Resource[SparkPipelineSpec]) -> list[Object]:
    """Mounts that a pod can write to."""
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    if claim_name(pipeline) is not None:
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
