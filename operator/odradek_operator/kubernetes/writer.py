"""Writes Kubernetes objects of one namespace: server-side apply, merge patch, delete, evict.

An object is applied only if it differs from the one at the API server, so that a pass with nothing
to do writes nothing. Two checks find that out: the observed object contains all that is wanted; or
it carries the digest of what was applied last and has not changed since (the API server may spell a
value differently: 1024Mi becomes 1Gi).
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from lightkube import Client, codecs
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.core_v1 import Pod
from lightkube.types import CascadeType, PatchType

from odradek_operator.kubernetes import names

Object = dict[str, Any]
Key = tuple[str, str]  # kind, name

NOT_FOUND, CONFLICT = 404, 409


class ObjectWriter:
    def __init__(self, client: Client, namespace: str, applied: dict[Key, str] | None = None):
        """`applied`: fingerprints of objects as the API server returned them, kept over passes."""
        self.changed: set[Key] = set()  # applied by this writer
        self._client = client
        self._namespace = namespace
        self._applied: dict[Key, str] = {} if applied is None else applied

    def apply(self, wanted: Object, found: Any | None) -> None:
        """`found`: the object of that kind and name as it was observed, if there is one."""
        key = wanted["kind"], wanted["metadata"]["name"]
        digest = digest_of(wanted)
        metadata = wanted["metadata"]
        annotations = {**metadata.get("annotations", {}), names.APPLIED_ANNOTATION: digest}
        marked = {**wanted, "metadata": {**metadata, "annotations": annotations}}
        if found is not None:
            if found.metadata.deletionTimestamp is not None:
                return  # created again once it is gone
            unchanged = self._applied.get(key) == _fingerprint(found)
            if (applied_digest(found) == digest and unchanged) or contains(found.to_dict(), marked):
                return
            if key[0] == "StatefulSet" and not _same_claims(found, wanted):
                # Claim templates are immutable: the set is created again and adopts its pods.
                self.delete(StatefulSet, key[1], cascade=CascadeType.ORPHAN)
                return
        made = self._client.apply(
            codecs.from_dict(marked), field_manager=names.FIELD_MANAGER, force=True
        )
        self._applied[key] = _fingerprint(made)
        self.changed.add(key)

    def apply_always(self, made: Any) -> None:
        """An object of any kind, without comparing it first."""
        apply: Any = self._client.apply
        apply(made, field_manager=names.FIELD_MANAGER, force=True, namespace=self._namespace)

    def create(self, made: Any) -> None:
        """Leaves an object of that name as it is."""
        try:
            self._client.create(made, namespace=self._namespace)
        except ApiError as error:
            if error.status.code != CONFLICT:
                raise

    def patch(self, kind: type[Any], name: str, change: Object) -> None:
        self._client.patch(
            kind,
            name,
            change,
            namespace=self._namespace,
            patch_type=PatchType.MERGE,
            field_manager=names.FIELD_MANAGER,
        )

    def delete(self, kind: Any, name: str, cascade: CascadeType | None = None) -> None:
        """Does nothing if there is no such object."""
        try:
            self._client.delete(kind, name, namespace=self._namespace, cascade=cascade)
        except ApiError as error:
            if error.status.code != NOT_FOUND:
                raise

    def evict(self, pod: Pod) -> None:
        """Deletes exactly this pod (its uid is a precondition), if the disruption budget allows."""
        assert pod.metadata is not None
        name = pod.metadata.name or ""
        eviction = Pod.Eviction(
            metadata=ObjectMeta(name=name, namespace=self._namespace),
            deleteOptions=_exactly(pod),
        )
        self._client.create(eviction, name, namespace=self._namespace)

    def delete_pod(self, pod: Pod) -> None:
        """As `evict`, without asking the disruption budget.

        lightkube's delete() takes no options; the parts it is made of do.
        """
        assert pod.metadata is not None
        inner: Any = self._client._client
        request = inner.prepare_request("delete", Pod, None, pod.metadata.name, self._namespace)
        request.data = _exactly(pod)
        answer = inner.send(inner.build_adapter_request(request))
        inner.handle_response("delete", answer, request)


def digest_of(wanted: Object) -> str:
    return hashlib.sha256(msgspec.json.encode(wanted, order="deterministic")).hexdigest()[:16]


def applied_digest(found: Any) -> str:
    """The digest of the object that was applied last."""
    return str((found.metadata.annotations or {}).get(names.APPLIED_ANNOTATION, ""))


def contains(found: Any, wanted: Any) -> bool:
    """Whether `found` has all wanted fields; the API server and others may have added fields."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            contains(found.get(key), value) or (value in ({}, [], "", None) and key not in found)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) >= len(wanted)
            and all(contains(a, b) for a, b in zip(found, wanted, strict=False))
        )
    return bool(found == wanted)


def _exactly(pod: Pod) -> DeleteOptions:
    assert pod.metadata is not None
    return DeleteOptions(preconditions=Preconditions(uid=pod.metadata.uid))


def _same_claims(found: StatefulSet, wanted: Object) -> bool:
    templates = found.to_dict()["spec"].get("volumeClaimTemplates") or []
    asked = wanted["spec"]["volumeClaimTemplates"]
    return len(templates) == len(asked) and contains(templates, asked)


def _fingerprint(found: Any) -> str:
    """A hash of the fields that users and controllers set; status and versions are left out."""
    content = found.to_dict()
    metadata = content.get("metadata", {})
    kept = {n: metadata.get(n) for n in ("annotations", "labels", "ownerReferences", "uid")}
    kept |= {n: v for n, v in content.items() if n not in ("metadata", "status")}
    return hashlib.sha256(repr(kept).encode()).hexdigest()
