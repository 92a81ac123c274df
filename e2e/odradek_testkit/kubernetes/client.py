"""Reads and writes Kubernetes objects with the official Python client.

    objects = ObjectClient(kubeconfig)
    objects.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {…}}, "kafka")
    objects.get("KafkaCluster", "main", "kafka")["status"]
    objects.find("Pod", "kafka", "odradek.dev/cluster=main")

The stories use it because it shares no code with lightkube, the operator's client. Objects are
plain dictionaries with the field names of the API. Kinds are named as in a manifest.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import GoneError, NotFoundError

Document = dict[str, Any]

FIELD_MANAGER = "odradek-testkit"
WATCH_S = 5  # a watch is renewed this often, and checks whether it should stop

OURS = "odradek.dev/v1alpha1"
API_VERSIONS = {
    "KafkaCluster": OURS,
    "KafkaRebalance": OURS,
    "KafkaUser": OURS,
    "Topic": OURS,
    "SparkPipeline": OURS,
    "SparkApplication": "sparkoperator.k8s.io/v1beta2",
    "ConfigMap": "v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "Event": "v1",
    "Namespace": "v1",
    "Node": "v1",
    "PersistentVolumeClaim": "v1",
    "Pod": "v1",
    "Secret": "v1",
    "Service": "v1",
    "ServiceAccount": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Lease": "coordination.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "StorageClass": "storage.k8s.io/v1",
    "SubjectAccessReview": "authorization.k8s.io/v1",
}


class RequestFailedError(Exception):
    """The API server refused a request; the text has its reason and its message."""

    def __init__(self, what: str, error: ApiException) -> None:
        super().__init__(f"{what}: {_message(error)}")
        self.status = int(error.status or 0)


class ObjectClient:
    """Objects of any kind in API_VERSIONS; `namespace` is left empty for cluster-wide kinds."""

    def __init__(self, kubeconfig: Path) -> None:
        # The client keeps its discovery in a file. By default that is one file per address, so a
        # new cluster on the same address would be taken for the old one.
        self._cache = tempfile.TemporaryDirectory(prefix="odradek-discovery-")
        self._connection: ApiClient = new_client_from_config(str(kubeconfig))
        try:
            self._client = DynamicClient(self._connection, str(Path(self._cache.name, "cache")))
        except BaseException:  # the API server does not answer
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.rest_client.pool_manager.clear()
        self._cache.cleanup()

    # -- writing -----------------------------------------------------------------------------------

    def apply(self, document: Document, namespace: str = "") -> Document:
        """Server-side apply: creates the object, or sets the fields that the document has."""
        name = f"{document['kind']} {document['metadata']['name']}"
        resource = self._resource(document["kind"], document["apiVersion"])
        try:
            return _plain(
                resource.server_side_apply(
                    body=document,
                    namespace=namespace or None,
                    field_manager=FIELD_MANAGER,
                    force_conflicts=True,
                )
            )
        except ApiException as error:
            raise RequestFailedError(f"apply {name}", error) from error

    def create(self, document: Document, namespace: str = "") -> Document:
        """The answer: the new object, or the result of a review, which is not stored."""
        resource = self._resource(document["kind"], document["apiVersion"])
        try:
            return _plain(resource.create(body=document, namespace=namespace or None))
        except ApiException as error:
            raise RequestFailedError(f"create {document['kind']}", error) from error

    def patch(self, kind: str, name: str, change: Document, namespace: str = "") -> Document:
        """A merge patch: fields that are None are removed."""
        try:
            return _plain(
                self._resource(kind).patch(
                    body=change,
                    name=name,
                    namespace=namespace or None,
                    content_type="application/merge-patch+json",
                )
            )
        except ApiException as error:
            raise RequestFailedError(f"patch {kind} {name}", error) from error

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        force: bool = False,
        orphan: bool = False,
    ) -> None:
        """Requests the deletion and does not wait for it; a missing object is no error.

        `force`: without a grace period. `orphan`: the objects that it owns stay.
        """
        try:
            self._resource(kind).delete(
                name=name,
                namespace=namespace or None,
                grace_period_seconds=0 if force else None,
                propagation_policy="Orphan" if orphan else "Background",
            )
        except NotFoundError:
            return
        except ApiException as error:
            raise RequestFailedError(f"delete {kind} {name}", error) from error

    # -- reading -----------------------------------------------------------------------------------

    def get(self, kind: str, name: str, namespace: str = "") -> Document:
        try:
            return _plain(self._resource(kind).get(name=name, namespace=namespace or None))
        except ApiException as error:
            raise RequestFailedError(f"get {kind} {name}", error) from error

    def get_if_any(self, kind: str, name: str, namespace: str = "") -> Document | None:
        """The object, or None if there is none of that name."""
        try:
            return self.get(kind, name, namespace)
        except RequestFailedError as error:
            if error.status == 404:
                return None
            raise

    def uid(self, kind: str, name: str, namespace: str = "") -> str:
        """Empty if there is no such object, or if it is being deleted."""
        found = self.get_if_any(kind, name, namespace)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return ""
        return str(found["metadata"]["uid"])

    def find(self, kind: str, namespace: str = "", selector: str = "") -> list[Document]:
        """All objects of a kind (in a namespace) that the label selector matches."""
        try:
            listed = _plain(
                self._resource(kind).get(
                    namespace=namespace or None, label_selector=selector or None
                )
            )
        except ApiException as error:
            raise RequestFailedError(f"list {kind}", error) from error
        found: list[Document] = listed["items"]
        return found

    def read(self, path: str) -> str:
        """The text at a path of the API server, such as a pod's port through its proxy."""
        try:
            answer = self._client.request(
                "get", path, serialize=False, header_params={"Accept": "*/*"}
            )
        except ApiException as error:
            raise RequestFailedError(f"get {path}", error) from error
        return bytes(answer.data).decode()

    def watch(
        self, kind: str, name: str, namespace: str, stop: threading.Event
    ) -> Iterator[Document]:
        """The object as it is now and after every change, until `stop` is set.

        Notices `stop` after at most WATCH_S seconds.
        """
        version: str | None = None
        while not stop.is_set():
            try:
                for event in self._client.watch(
                    self._resource(kind),
                    namespace=namespace,
                    name=name,
                    resource_version=version,
                    timeout=WATCH_S,
                ):
                    found: Document = event["raw_object"]
                    version = found["metadata"]["resourceVersion"]
                    yield found
            except GoneError:  # the API server no longer has that version
                version = None

    def _resource(self, kind: str, api_version: str = "") -> Any:
        return self._client.resources.get(api_version=api_version or API_VERSIONS[kind], kind=kind)


def _plain(instance: Any) -> Document:
    found: Document = instance.to_dict()
    return found


def _message(error: ApiException) -> str:
    """The message of the Status in the answer's body; the reason if there is none."""
    try:
        body = json.loads(error.body or "")
        return f"{body['reason']}: {body['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason}"
