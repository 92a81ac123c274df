"""The objects that run a SparkApplication where no other Spark operator does. Does no I/O.

    ServiceAccount, Role, RoleBinding  page-views-driver   the driver creates its executors
    Pod          page-views-driver     spark-submit in client mode
    ConfigMap    page-views-executor   pod template of the executors
    Service      page-views-driver     headless: the driver's address for executors
    Service      page-views-ui-svc     Spark's web UI, with kubeflow's name

The image must support the arguments `driver` and `executor`, as Spark's images and ours do.
Users' own SparkApplications run the same way: type, mainClass, mainApplicationFile, arguments,
sparkConf, hadoopConf, deps, driver, executor, dynamicAllocation, volumes, imagePullSecrets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from odradek_api.base import owner_reference

Object = dict[str, Any]
Application = Mapping[str, Any]

APP_LABEL = "sparkoperator.k8s.io/app-name"
ROLE_LABEL = "spark-role"
SUBMISSION = "sparkoperator.k8s.io/submission-id"
MASTER = "k8s://https://kubernetes.default.svc"
DRIVER_PORT, BLOCKS_PORT, UI_PORT = 7078, 7079, 4040
TEMPLATE_DIR, TEMPLATE_FILE = "/etc/odradek/executor", "pod.json"
NAME_MAX = 30  # characters of the application's name in those of its executors
USER_ID = 10001
POD_SECURITY = {"runAsNonRoot": True, "runAsUser": USER_ID, "fsGroup": USER_ID,
                "seccompProfile": {"type": "RuntimeDefault"}}  # fmt: skip
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
OVERHEAD = {"Python": 0.4, "R": 0.4}  # share of the JVM's memory, as in Spark; others 0.1
OVERHEAD_MIN_MB = 384
_MB = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}


def driver_name(name: str) -> str:
    return f"{name}-driver"


def ui_service_name(name: str) -> str:
    return f"{name}-ui-svc"


def executor_prefix(application: Application, attempt: int) -> str:
    """Different for each attempt, because executors of an earlier one may still be terminating.

    Spark allows 47 characters, and appends -exec-1.
    """
    metadata = application["metadata"]
    name = metadata["name"][:NAME_MAX].replace(".", "-").rstrip("-")
    return f"{name}-{str(metadata.get('uid', ''))[:5]}-{attempt}"


def objects(application: Application, submission: str, attempt: int = 1) -> list[Object]:
    """All objects in creation order, the driver pod last."""
    name, spec = application["metadata"]["name"], application["spec"]
    made = []
    if (spec.get("driver") or {}).get("serviceAccount", driver_name(name)) == driver_name(name):
        made += driver_account(application)
    return [*made, _template_config(application), _driver_service(application),
            _ui_service(application),
            driver_pod(application, submission, attempt)]  # fmt: skip


def driver_pod(application: Application, submission: str, attempt: int) -> Object:
    name, spec = application["metadata"]["name"], application["spec"]
    driver = spec.get("driver") or {}
    pod: Object = {
        "restartPolicy": "Never",
        "serviceAccountName": driver.get("serviceAccount") or driver_name(name),
        "containers": [_container(application, attempt)],
        "volumes": [
            *spec.get("volumes", ()),
            {"name": "spark-local", "emptyDir": {}},
            {"name": "spark-executor", "configMap": {"name": f"{name}-executor"}},
        ],
        "securityContext": POD_SECURITY,
    }
    for field in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "hostAliases",
                  "terminationGracePeriodSeconds"):  # fmt: skip
        if driver.get(field):
            pod[field] = driver[field]
    if spec.get("imagePullSecrets"):
        pod["imagePullSecrets"] = [{"name": one} for one in spec["imagePullSecrets"]]
    made = _object(application, "v1", "Pod", driver_name(name), "driver")
    made["metadata"]["labels"] |= driver.get("labels") or {}
    annotations = {**(driver.get("annotations") or {}), SUBMISSION: submission}
    made["metadata"]["annotations"] = annotations
    return {**made, "spec": pod}


def _container(application: Application, attempt: int) -> Object:
    spec = application["spec"]
    driver = spec.get("driver") or {}
    memory = f"{memory_mb(driver, spec.get('type', ''))}Mi"
    requests: Object = {"cpu": str(driver.get("coreRequest") or driver.get("cores") or 1),
                        "memory": memory}  # fmt: skip
    limits: Object = {"memory": memory}
    if driver.get("coreLimit"):
        limits["cpu"] = str(driver["coreLimit"])
    mounts = [
        *driver.get("volumeMounts", ()),
        {"name": "spark-local", "mountPath": "/tmp/spark"},
        {"name": "spark-executor", "mountPath": TEMPLATE_DIR, "readOnly": True},
    ]
    made = {
        "name": "spark-kubernetes-driver",
        "image": driver.get("image") or spec.get("image"),
        "imagePullPolicy": spec.get("imagePullPolicy", "IfNotPresent"),
        "args": ["driver", *submit_arguments(application, attempt)],
        "env": [
            _field("SPARK_DRIVER_BIND_ADDRESS", "status.podIP"),
            _field("ODRADEK_POD_NAME", "metadata.name"),
            _field("ODRADEK_POD_NAMESPACE", "metadata.namespace"),
            {"name": "SPARK_LOCAL_DIRS", "value": "/tmp/spark"},
            *driver.get("env", ()),
        ],
        "ports": [
            {"name": "driver", "containerPort": DRIVER_PORT},
            {"name": "blocks", "containerPort": BLOCKS_PORT},
            {"name": "ui", "containerPort": UI_PORT},
        ],
        "resources": {"requests": requests, "limits": limits},
        "volumeMounts": mounts,
    }
    if driver.get("envFrom"):
        made["envFrom"] = driver["envFrom"]
    made["securityContext"] = driver.get("securityContext") or CONTAINER_SECURITY
    return made


def memory_mb(pod: Mapping[str, Any], kind: str) -> int:
    """Memory of the container: the JVM's, plus the overhead for Python and everything else."""
    heap = _megabytes(str(pod.get("memory") or "1g"))
    if pod.get("memoryOverhead"):
        return heap + _megabytes(str(pod["memoryOverhead"]))
    return heap + max(OVERHEAD_MIN_MB, round(heap * OVERHEAD.get(kind, 0.1)))


def _megabytes(text: str) -> int:
    text = text.lower().removesuffix("b").removesuffix("i")
    return round(float(text[:-1]) * _MB[text[-1]]) if text[-1] in _MB else round(int(text) / 2**20)


def submit_arguments(application: Application, attempt: int = 1) -> list[str]:
    """The arguments after `spark-submit --deploy-mode client`."""
    spec = application["spec"]
    master = str((spec.get("sparkConf") or {}).get("spark.master") or MASTER)
    arguments = ["--master", master, "--name", application["metadata"]["name"]]
    if spec.get("mainClass"):
        arguments += ["--class", spec["mainClass"]]
    for key, value in sorted(configuration(application, attempt).items()):
        arguments += ["--conf", f"{key}={value}"]
    return [*arguments, spec["mainApplicationFile"], *map(str, spec.get("arguments", ()))]


def configuration(application: Application, attempt: int) -> dict[str, str]:
    metadata, spec = application["metadata"], application["spec"]
    name, namespace = metadata["name"], metadata["namespace"]
    driver, executor = spec.get("driver") or {}, spec.get("executor") or {}
    made: dict[str, Any] = {
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.container.image": executor.get("image") or spec.get("image"),
        "spark.kubernetes.container.image.pullPolicy": spec.get("imagePullPolicy", "IfNotPresent"),
        "spark.kubernetes.driver.pod.name": driver_name(name),
        "spark.kubernetes.executor.podNamePrefix": executor_prefix(application, attempt),
        "spark.driver.host": f"{driver_name(name)}.{namespace}.svc",
        "spark.driver.port": DRIVER_PORT,
        "spark.driver.blockManager.port": BLOCKS_PORT,
        "spark.ui.port": UI_PORT,
        "spark.driver.memory": driver.get("memory") or "1g",
        "spark.executor.memory": executor.get("memory") or "1g",
        "spark.executor.cores": executor.get("cores") or 1,
        "spark.executor.instances": executor.get("instances") or 1,
    }
    if executor.get("memoryOverhead"):
        made["spark.executor.memoryOverhead"] = executor["memoryOverhead"]
    if executor.get("coreRequest"):
        made["spark.kubernetes.executor.request.cores"] = executor["coreRequest"]
    if executor.get("coreLimit"):
        made["spark.kubernetes.executor.limit.cores"] = executor["coreLimit"]
    if spec.get("imagePullSecrets"):
        secrets = ",".join(spec["imagePullSecrets"])
        made["spark.kubernetes.container.image.pullSecrets"] = secrets
    made["spark.kubernetes.executor.podTemplateFile"] = f"{TEMPLATE_DIR}/{TEMPLATE_FILE}"
    made |= _dependencies(spec.get("deps") or {})
    if (allocation := spec.get("dynamicAllocation") or {}).get("enabled"):
        made |= _allocation(allocation)
    made |= {f"spark.hadoop.{key}": value for key, value in (spec.get("hadoopConf") or {}).items()}
    made |= spec.get("sparkConf") or {}
    return {key: str(value) for key, value in made.items()}


def executor_template(application: Application) -> Object:
    """The pod template of the executors, for what Spark's settings cannot express.

    The restricted Pod Security Standard would refuse Spark's own pods.
    """
    spec = application["spec"]
    executor = spec.get("executor") or {}
    mounts = executor.get("volumeMounts") or []
    mounted = {mount["name"] for mount in mounts}
    container: Object = {
        "name": "spark-kubernetes-executor",
        "securityContext": executor.get("securityContext") or CONTAINER_SECURITY,
    }
    for field in ("env", "envFrom", "volumeMounts"):
        if executor.get(field):
            container[field] = executor[field]
    pod: Object = {"securityContext": POD_SECURITY, "containers": [container]}
    if volumes := [one for one in spec.get("volumes", ()) if one["name"] in mounted]:
        pod["volumes"] = volumes
    for field in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
        if executor.get(field):
            pod[field] = executor[field]
    labels = {**(executor.get("labels") or {}), APP_LABEL: application["metadata"]["name"]}
    metadata: Object = {"labels": labels}
    if executor.get("annotations"):
        metadata["annotations"] = executor["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def _template_config(application: Application) -> Object:
    text = json.dumps(executor_template(application), indent=1, sort_keys=True)
    name = f"{application['metadata']['name']}-executor"
    made = _object(application, "v1", "ConfigMap", name, "executor")
    return {**made, "data": {TEMPLATE_FILE: text}}


def _dependencies(deps: Mapping[str, Any]) -> dict[str, str]:
    keys = {"jars": "spark.jars", "files": "spark.files", "pyFiles": "spark.submit.pyFiles",
            "packages": "spark.jars.packages", "repositories": "spark.jars.repositories",
            "excludePackages": "spark.jars.excludes"}  # fmt: skip
    return {key: ",".join(deps[field]) for field, key in keys.items() if deps.get(field)}


def _allocation(allocation: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"spark.dynamicAllocation.enabled": "true",
                            "spark.dynamicAllocation.shuffleTracking.enabled": "true"}  # fmt: skip
    for name in ("initialExecutors", "minExecutors", "maxExecutors"):
        if allocation.get(name) is not None:
            made[f"spark.dynamicAllocation.{name}"] = allocation[name]
    return made


# -- accounts and services -------------------------------------------------------------------------


def _object(application: Application, version: str, kind: str, name: str, role: str) -> Object:
    metadata = application["metadata"]
    labels = {APP_LABEL: metadata["name"], ROLE_LABEL: role,
              "app.kubernetes.io/managed-by": "odradek-operator"}  # fmt: skip
    owner = owner_reference(
        application["apiVersion"], application["kind"], metadata["name"], metadata.get("uid", "")
    )
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": metadata["namespace"], "labels": labels,
                     "ownerReferences": [owner]},
    }  # fmt: skip


def driver_account(application: Application) -> list[Object]:
    """Lets a driver create, read and delete pods and their resources in its own namespace.

    Owned by the SparkApplication, or by a SparkPipeline whose application kubeflow's operator runs.
    """
    name = driver_name(application["metadata"]["name"])
    verbs = ["get", "list", "watch", "create", "patch", "delete", "deletecollection"]
    resources = ["pods", "configmaps", "services", "persistentvolumeclaims"]
    role = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": name,
               "namespace": application["metadata"]["namespace"]}  # fmt: skip
    return [
        _object(application, "v1", "ServiceAccount", name, "driver"),
        {**_object(application, f"{role}/v1", "Role", name, "driver"),
         "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}]},
        {**_object(application, f"{role}/v1", "RoleBinding", name, "driver"),
         "roleRef": {"apiGroup": role, "kind": "Role", "name": name}, "subjects": [subject]},
    ]  # fmt: skip


def _driver_service(application: Application) -> Object:
    """Publishes the address early: executors connect before the driver is ready."""
    name = application["metadata"]["name"]
    ports = [{"name": "driver", "port": DRIVER_PORT}, {"name": "blocks", "port": BLOCKS_PORT}]
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": _selector(name),
            "ports": ports}  # fmt: skip
    return {**_object(application, "v1", "Service", driver_name(name), "driver"), "spec": spec}


def _ui_service(application: Application) -> Object:
    name = application["metadata"]["name"]
    ports = [{"name": "ui", "port": UI_PORT, "targetPort": "ui"}]
    made = _object(application, "v1", "Service", ui_service_name(name), "driver")
    return {**made, "spec": {"selector": _selector(name), "ports": ports}}


def _selector(name: str) -> dict[str, str]:
    return {APP_LABEL: name, ROLE_LABEL: "driver"}


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
