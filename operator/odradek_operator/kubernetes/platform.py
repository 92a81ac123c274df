"""The brokers of one cluster as StatefulSets and pods: the Kubernetes half of the platform port.

A pass reads the state once (`refresh`); then it is looked at, written down and acted upon. What
is applied goes by server-side apply under one field manager, and only if it differs from what is
there, so that a pass that has nothing to do writes nothing.

A pod is restarted through the eviction API with its uid: never another pod than the one that the
plan was about, and never against the PodDisruptionBudget.
"""

from __future__ import annotations

import hashlib
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec
from lightkube import Client, codecs
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.core_v1 import PersistentVolumeClaim, Pod, Secret
from lightkube.types import CascadeType, PatchType
from lightkube.utils.quantity import parse_quantity

from odradek_api.base import API_VERSION, Resource, owner_reference
from odradek_api.kafka_cluster.spec import CONTROLLER_PORT, External, KafkaClusterSpec
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_operator.admin.kafka_admin import AdminError, NotYetError
from odradek_operator.kafka.desired import SECRETS, VOTERS_MAX, DesiredCluster, Endpoint, Known
from odradek_operator.kafka.observed import ObservedBroker, Phase
from odradek_operator.kafka.placement import is_controller
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.manifests import (
    DATA_DIR,
    Object,
    Rack,
    manifests,
)
from odradek_operator.kubernetes.pods import phase_of
from odradek_operator.kubernetes.properties import properties_text
from odradek_operator.kubernetes.state import (
    ClusterState,
    config_names,
    name_of,
    read_state,
    secret_names,
)

ADDRESS_GRACE_S = 120.0  # clouds need a minute or so for a load balancer
FORBIDDEN, NOT_FOUND, CONFLICT, INVALID, TOO_MANY = 403, 404, 409, 422, 429


class KubernetesPlatform:
    def __init__(
        self,
        client: Client,
        resource: Resource[KafkaClusterSpec],
        status: KafkaClusterStatus,
        image: Callable[[KafkaClusterSpec], str],
        applied: dict[tuple[str, str], str] | None = None,
        node_racks: Mapping[str, str] | None = None,
    ) -> None:
        """`status`: the last one; who formed the cluster is written down there.

        `applied`: fingerprints of what the API server made of our objects, kept over passes.
        `node_racks`: which node is in which rack now, as far as that is known.
        """
        self.resource = resource
        self.state = ClusterState(resource.name)
        self._client = client
        self._status = status
        self._image = image
        self._applied: dict[tuple[str, str], str] = {} if applied is None else applied
        self._node_racks = node_racks or {}
        self._secrets = ""
        self._existing: Mapping[int, str] = {}  # before this pass
        self.problems: list[str] = []  # of this pass: what Kubernetes would not do
        self._changed: set[tuple[str, str]] = set()  # what was applied in this pass
        self._restarts: list[bool] = []  # of this pass: whether each was allowed

    def refresh(self) -> None:
        existing = [b.id for b in self._status.brokers] + [c.id for c in self._status.controllers]
        place = (self.resource.namespace, self.resource.name)
        self.state = read_state(self._client, *place, existing)
        self._restarts = []
        known = self.known()
        self._existing = {**known.existing, **known.controllers}
        self._secrets = self._look_at_secrets()

    # -- what is known and seen --------------------------------------------------------------------

    def known(self) -> Known:
        racks = self.state.racks.values()
        return Known(
            existing={b: r.name for r in racks for b in r.ids if b not in r.removed},
            kept={b: r.name for r in racks for b in r.removed},
            controllers={b: r.name for r in self.state.controllers.values() for b in r.ids},
            formation=tuple(self._status.formation) or self.state.formation or self._formed(),
            cluster_id=self.state.cluster_id or _cluster_id(self.resource.uid),
            secrets=self._secrets,
        )

    def _formed(self) -> tuple[int, ...]:
        """By the volumes that an earlier cluster of this name left: controllers apart, or not."""
        state = self.state
        if self.resource.spec.engine != "apache":
            return ()
        if state.controllers:
            return tuple(sorted(b for rack in state.controllers.values() for b in rack.ids))
        if self.resource.spec.controllers is None or not state.claims:
            return ()
        return tuple(sorted(b for rack in state.racks.values() for b in rack.ids)[:VOTERS_MAX])

    def observe(self) -> Mapping[int, ObservedBroker]:
        racks = self.state.all_racks()
        now = time.time()
        seen = (f for rack in racks for f in self.state.observe(rack, now, self._node_racks))
        return {found.id: found for found in seen if found.id in self._existing}

    def _look_at_secrets(self) -> str:
        """A hash of the Secrets that the pods mount; of one that may not be read, what it was."""
        versions = []
        for name in secret_names(self.resource.spec.pod_template.volumes):
            try:
                found = self._client.get(Secret, name, namespace=self.resource.namespace)
            except ApiError as error:
                if error.status.code not in (FORBIDDEN, NOT_FOUND):
                    raise
                say = f"Secret {name}: whether it changes is not seen: {error.status.message}"
                self.problems.append(say)
                return self.state.template_setting(SECRETS)
            versions.append((name, found.data))
        if not versions:
            return ""
        content = msgspec.json.encode(versions, order="deterministic")
        return hashlib.sha256(content).hexdigest()[:12]

    def endpoints(
        self, brokers: Mapping[int, str], spec: KafkaClusterSpec
    ) -> Mapping[int, Endpoint]:
        self.state.add(brokers)
        everyone = [b for rack in self.state.all_racks() for b in rack.ids]
        return {broker: self._endpoint(broker, spec) for broker in everyone}

    def _endpoint(self, broker: int, spec: KafkaClusterSpec) -> Endpoint:
        pod = self.state.pod_of(broker)
        service = names.brokers_service(self.resource.name)
        port = spec.listeners.port
        address = f"{pod}.{service}.{self.resource.namespace}.svc:{port}"
        listeners, advertised = f"PLAINTEXT://:{port}", f"PLAINTEXT://{address}"
        controller = f"{address.rpartition(':')[0]}:{CONTROLLER_PORT}"
        admin = f"0.0.0.0:{spec.metrics.port}"
        if is_controller(broker):
            return Endpoint(controller, "", "", admin, (f"{DATA_DIR}/data-0/log",), controller)
        external = spec.listeners.external
        if external is not None and (outside := self._outside(broker, pod, external)):
            listeners += f",EXTERNAL://:{external.port}"
            advertised += f",EXTERNAL://{outside}"
        dirs = tuple(f"{DATA_DIR}/data-{n}/log" for n in range(spec.storage.volumes))
        return Endpoint(address, listeners, advertised, admin, dirs, controller)

    def _outside(self, broker: int, pod: str, external: External) -> str:
        """host:port for clients outside; empty as long as Kubernetes has given none."""
        given = next((one for one in external.brokers if one.id == broker), None)
        service = self.state.services.get(names.external_service(pod))
        if service is None or service.spec is None:
            return ""
        if external.type == "LoadBalancer":
            balancer = service.status.loadBalancer if service.status else None
            found = (balancer.ingress if balancer else None) or []
            host = given.host if given else found and (found[0].hostname or found[0].ip)
            port: int | None = given.port if given and given.port else external.port
        else:
            # The node's own address, which only the pod itself knows.
            host = given.host if given else "${env:HOST_IP}"
            port = given.port if given and given.port else (service.spec.ports or [])[0].nodePort
        return f"{host}:{port}" if host and port else ""

    def bootstrap(self) -> str:
        port = self.resource.spec.listeners.port
        name = names.bootstrap_service(self.resource.name)
        return f"{name}.{self.resource.namespace}.svc:{port}"

    # -- what is done ------------------------------------------------------------------------------

    def write_down(self, desired: DesiredCluster) -> None:
        """Everything around the pods as it should be; who runs and who restarts is not changed."""
        objects = self._objects(desired)
        self._grow_claims(desired)
        for wanted in objects:
            self._apply(wanted)
        self._label_claims()
        self._sweep({(one["kind"], one["metadata"]["name"]) for one in objects})

    def differences(self, desired: DesiredCluster) -> list[str]:
        """What `write_down` would make or change, "make Service main-brokers"; for a dry run."""
        said = []
        for wanted in self._objects(desired):
            key = wanted["kind"], wanted["metadata"]["name"]
            found = self.state.objects.get(key)
            if found is None:
                said.append(f"make {' '.join(key)}")
            elif _applied(found) != _digest(wanted) and not contains(found.to_dict(), wanted):
                said.append(f"change {' '.join(key)}")
        return said

    def _objects(self, desired: DesiredCluster) -> list[Object]:
        files = {
            self.state.pod_of(broker.id): properties_text(broker.settings)
            for broker in desired.nodes.values()
        }
        before = self.state.files()
        files |= {p: before[p] for p in map(self.state.pod_of, desired.leaving) if p in before}
        owner = owner_reference(API_VERSION, "KafkaCluster", desired.name, self.resource.uid)
        image = self._image(desired.spec)
        controllers = self.state.controllers if desired.controllers else {}
        return manifests(desired, self.state.racks, files, owner, image, controllers)

    def start(self, broker: int, settings: Mapping[str, str] | None) -> None:  # noqa: ARG002
        """Its StatefulSet makes the pod, with the settings that were written down."""
        external = self.resource.spec.listeners.external
        pod = self.state.pod_of(broker)
        apart = is_controller(broker)
        if external is not None and not apart and not self._outside(broker, pod, external):
            raise self._no_address(names.external_service(pod))
        rack, ordinal = self.state.place_of(broker)
        self._scale(rack, max(rack.replicas, ordinal + 1))

    def _no_address(self, service: str) -> Exception:
        """A Service that was made a moment ago has none; one that still has none is a problem."""
        made = self.state.services.get(service)
        when = made.metadata.creationTimestamp if made and made.metadata else None
        if when is None or time.time() - when.timestamp() < ADDRESS_GRACE_S:
            return NotYetError(f"Service {service} has no address for clients outside yet")
        return AdminError(f"Service {service} gets no address for clients outside")

    def restart(self, broker: int, settings: Mapping[str, str]) -> None:  # noqa: ARG002
        """The first of a step asks the disruption budget, for all of them: it counts to one."""
        pod = self.state.pods.get(self.state.pod_of(broker))
        if pod is None or pod.metadata is None or pod.metadata.deletionTimestamp is not None:
            return
        if not all(self._restarts) or not self._template_is_seen(broker):
            self._restarts.append(False)
            return
        name, namespace = pod.metadata.name or "", self.resource.namespace
        only_this = DeleteOptions(preconditions=Preconditions(uid=pod.metadata.uid))
        try:
            if self._restarts:
                self._delete_pod(name, only_this)
            else:
                metadata = ObjectMeta(name=name, namespace=namespace)
                eviction = Pod.Eviction(metadata=metadata, deleteOptions=only_this)
                self._client.create(eviction, name, namespace=namespace)
            self._restarts.append(True)
        except ApiError as error:
            # Gone or replaced meanwhile, or the budget says no: the next pass looks again.
            if error.status.code not in (NOT_FOUND, CONFLICT, TOO_MANY):
                raise
            self._restarts.append(False)

    def _template_is_seen(self, broker: int) -> bool:
        """Until its controller has seen the new template, a pod would come back from the old."""
        rack, _ = self.state.place_of(broker)
        found = self.state.sets.get(rack.set_name(self.resource.name))
        if found is None or ("StatefulSet", name_of(found)) in self._changed:
            return False
        assert found.metadata is not None
        seen = found.status.observedGeneration if found.status else None
        return (seen or 0) >= (found.metadata.generation or 0)

    def stop(self, broker: int) -> None:
        rack, ordinal = self.state.place_of(broker)
        above = rack.ids[ordinal + 1 : rack.replicas]
        if above:
            others = ", ".join(map(str, above))
            raise NotYetError(f"a StatefulSet ends from above: first broker {others}")
        self._scale(rack, min(rack.replicas, ordinal))

    def remove(self, broker: int, *, delete_volumes: bool) -> None:
        rack, _ = self.state.place_of(broker)
        if delete_volumes:
            pod = self.state.pod_of(broker)
            for claim in self.state.claims:
                if claim.removeprefix("data-").partition("-")[2] == pod:
                    self._delete(PersistentVolumeClaim, claim)
        removed = ",".join(map(str, sorted(rack.removed | {broker})))
        change = {"metadata": {"annotations": {names.REMOVED_IDS_ANNOTATION: removed}}}
        self._patch(StatefulSet, rack.set_name(self.resource.name), change)
        self.state.put(replace(rack, removed=rack.removed | {broker}))

    # -- writes ------------------------------------------------------------------------------------

    def _apply(self, wanted: Object) -> None:
        key = wanted["kind"], wanted["metadata"]["name"]
        digest = _digest(wanted)
        metadata = wanted["metadata"]
        annotations = {**metadata.get("annotations", {}), names.APPLIED_ANNOTATION: digest}
        marked = {**wanted, "metadata": {**metadata, "annotations": annotations}}
        found = self.state.objects.get(key)
        if found is not None:
            if found.metadata.deletionTimestamp is not None:
                return  # it is made again when it has gone
            # Contained as we write it, or as the API server spelled it last (1024Mi is 1Gi).
            same = _applied(found) == digest and self._applied.get(key) == _fingerprint(found)
            if same or contains(found.to_dict(), marked):
                return
            if key[0] == "StatefulSet" and not _same_claims(found, wanted):
                # Its template of claims is for life: it is made anew, and adopts its pods then.
                self._delete(StatefulSet, key[1], cascade=CascadeType.ORPHAN)
                return
        made = self._client.apply(
            codecs.from_dict(marked), field_manager=names.FIELD_MANAGER, force=True
        )
        self._applied[key] = _fingerprint(made)
        self._changed.add(key)

    def _scale(self, rack: Rack, replicas: int) -> None:
        if rack.replicas != replicas:
            name = rack.set_name(self.resource.name)
            self._patch(StatefulSet, name, {"spec": {"replicas": replicas}})
            self.state.put(replace(rack, replicas=replicas))

    def _grow_claims(self, desired: DesiredCluster) -> None:
        """In place; one that is larger already (by hand, by an autoscaler) is fine.

        Only a bound claim can grow, and only if its StorageClass lets it.
        """
        apart = desired.spec.controllers
        for name, claim in self.state.claims.items():
            labels = (claim.metadata.labels if claim.metadata else None) or {}
            wanted = desired.spec.storage.size
            if apart is not None and labels.get(names.ROLE_LABEL) == names.CONTROLLER:
                wanted = apart.storage.size
            asked = (claim.spec.resources if claim.spec else None) or None
            size = ((asked.requests if asked else None) or {}).get("storage", "0")
            if _is_bound(claim) and (parse_quantity(str(size)) or 0) < (
                parse_quantity(wanted) or 0
            ):
                grown = {"spec": {"resources": {"requests": {"storage": wanted}}}}
                try:
                    self._patch(PersistentVolumeClaim, name, grown)
                except ApiError as error:
                    if error.status.code not in (FORBIDDEN, INVALID):
                        raise
                    self.problems.append(f"claim {name} does not grow: {error.status.message}")

    def _label_claims(self) -> None:
        """Which broker's data it is: the ids outlive the StatefulSet on the claims.

        Only once there can be data: until then the scheduler, the provisioner and the StatefulSet's
        controller change the claim, and one of them would meet a conflict.
        """
        for rack in self.state.all_racks():
            for ordinal, broker in enumerate(rack.ids):
                pod = rack.pod_name(self.resource.name, ordinal)
                for volume in range(rack.volumes(self.resource.spec)):
                    name = names.claim_name(volume, pod)
                    claim = self.state.claims.get(name)
                    labels = (claim.metadata.labels if claim and claim.metadata else None) or {}
                    if not claim or not (_is_bound(claim) or self._is_ready(pod)):
                        continue
                    if labels.get(names.BROKER_ID_LABEL) != str(broker):
                        label = {"metadata": {"labels": {names.BROKER_ID_LABEL: str(broker)}}}
                        self._patch(PersistentVolumeClaim, name, label)

    def _is_ready(self, pod: str) -> bool:
        found = self.state.pods.get(pod)
        return found is not None and phase_of(found, time.time())[0] is Phase.READY

    def _sweep(self, wanted: set[tuple[str, str]]) -> None:
        """Ours that nobody needs: ConfigMaps that no pod and no template names, old services."""
        used = {name for pod in self.state.pods.values() for name in config_names(pod)}
        used |= {
            name
            for one in self.state.sets.values()
            for name in config_names(one.spec.template if one.spec else None)
        }
        for (kind, name), found in self.state.objects.items():
            owners = found.metadata.ownerReferences or ()
            ours = any(owner.uid == self.resource.uid for owner in owners)
            if not ours or (kind, name) in wanted or found.metadata.deletionTimestamp is not None:
                continue
            if kind in ("Service", "NetworkPolicy") or (kind == "ConfigMap" and name not in used):
                self._delete(type(found), name)

    def _patch(self, kind: type[Any], name: str, change: Object) -> None:
        self._client.patch(
            kind,
            name,
            change,
            namespace=self.resource.namespace,
            patch_type=PatchType.MERGE,
            field_manager=names.FIELD_MANAGER,
        )

    def _delete(self, kind: type[Any], name: str, cascade: CascadeType | None = None) -> None:
        try:
            self._client.delete(kind, name, namespace=self.resource.namespace, cascade=cascade)
        except ApiError as error:
            if error.status.code != NOT_FOUND:
                raise

    def _delete_pod(self, name: str, options: DeleteOptions) -> None:
        """lightkube's delete() takes no options; its own parts do."""
        inner: Any = self._client._client
        request = inner.prepare_request("delete", Pod, None, name, self.resource.namespace)
        request.data = options
        answer = inner.send(inner.build_adapter_request(request))
        inner.handle_response("delete", answer, request)


def _is_bound(claim: PersistentVolumeClaim) -> bool:
    return claim.status is not None and claim.status.phase == "Bound"


def _cluster_id(uid: str) -> str:
    """A new cluster is called by the uid of its resource, in Kafka's spelling."""
    text = urlsafe_b64encode(UUID(uid).bytes).decode().rstrip("=")
    return "A" + text[1:] if text.startswith("-") else text  # Kafka's never begin so


def _digest(wanted: Object) -> str:
    return hashlib.sha256(msgspec.json.encode(wanted, order="deterministic")).hexdigest()[:16]


def _applied(found: Any) -> str:
    """The digest of what was applied last."""
    return str((found.metadata.annotations or {}).get(names.APPLIED_ANNOTATION, ""))


def _same_claims(found: StatefulSet, wanted: Object) -> bool:
    templates = found.to_dict()["spec"].get("volumeClaimTemplates") or []
    asked = wanted["spec"]["volumeClaimTemplates"]
    return len(templates) == len(asked) and contains(templates, asked)


def _fingerprint(found: Any) -> str:
    """Of all that is ours to say; status and versions change by themselves."""
    content = found.to_dict()
    metadata = content.get("metadata", {})
    kept = {n: metadata.get(n) for n in ("annotations", "labels", "ownerReferences", "uid")}
    kept |= {n: v for n, v in content.items() if n not in ("metadata", "status")}
    return hashlib.sha256(repr(kept).encode()).hexdigest()


def contains(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; the API server and others may have added to it."""
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
