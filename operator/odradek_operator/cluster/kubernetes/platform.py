"""The brokers of one cluster as StatefulSets and pods: the Kubernetes half of the platform port.

A pass reads the state once (`refresh`); then it is looked at, written down and acted upon. What
is applied goes by server-side apply under one field manager, and only if it differs from what is
there, so that a pass that has nothing to do writes nothing.

A pod is restarted through the eviction API with its uid: never another pod than the one that the
plan was about, and never against the PodDisruptionBudget.
"""

from __future__ import annotations

import hashlib
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
from lightkube.resources.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Service
from lightkube.types import CascadeType, PatchType

from odradek_operator.api.base import API_VERSION, Resource, quantity_bytes
from odradek_operator.api.kafka_cluster import External, KafkaClusterSpec
from odradek_operator.cluster.kubernetes import names
from odradek_operator.cluster.kubernetes.manifests import (
    DATA_DIR,
    Object,
    manifests,
    owner_reference,
)
from odradek_operator.cluster.kubernetes.state import ClusterState, properties_text, read_state
from odradek_operator.desired.build import DesiredCluster, Endpoint, Known
from odradek_operator.observed import ObservedBroker

NOT_FOUND, CONFLICT, TOO_MANY = 404, 409, 429


class KubernetesPlatform:
    def __init__(
        self,
        client: Client,
        resource: Resource[KafkaClusterSpec],
        formation: tuple[int, ...],
        image: Callable[[KafkaClusterSpec], str],
    ) -> None:
        """`formation`: from the status of the resource, where it is written down."""
        self.resource = resource
        self.state = ClusterState(resource.name)
        self._client = client
        self._formation = formation
        self._image = image

    def refresh(self) -> None:
        self.state = read_state(self._client, self.resource.namespace, self.resource.name)

    # -- what is known and seen --------------------------------------------------------------------

    def known(self) -> Known:
        racks = self.state.racks.values()
        return Known(
            existing={b: r.name for r in racks for b in r.ids if b not in r.removed},
            kept={b: r.name for r in racks for b in r.removed},
            formation=self._formation,
            cluster_id=self.state.cluster_id or _cluster_id(self.resource.uid),
        )

    def observe(self) -> Mapping[int, ObservedBroker]:
        racks = self.state.racks.values()
        return {found.id: found for rack in racks for found in self.state.observe(rack)}

    def endpoints(
        self, brokers: Mapping[int, str], spec: KafkaClusterSpec
    ) -> Mapping[int, Endpoint]:
        self.state.add(brokers)
        everyone = [b for rack in self.state.racks.values() for b in rack.ids]
        return {broker: self._endpoint(broker, spec) for broker in everyone}

    def _endpoint(self, broker: int, spec: KafkaClusterSpec) -> Endpoint:
        pod = self.state.pod_of(broker)
        service = names.brokers_service(self.resource.name)
        port = spec.listeners.port
        address = f"{pod}.{service}.{self.resource.namespace}.svc:{port}"
        listeners, advertised = f"PLAINTEXT://:{port}", f"PLAINTEXT://{address}"
        external = spec.listeners.external
        if external is not None and (outside := self._outside(broker, pod, external)):
            listeners += f",EXTERNAL://:{external.port}"
            advertised += f",EXTERNAL://{outside}"
        dirs = tuple(f"{DATA_DIR}/data-{n}/log" for n in range(spec.storage.volumes))
        return Endpoint(address, listeners, advertised, f"0.0.0.0:{spec.metrics.port}", dirs)

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
        files = {
            self.state.pod_of(broker.id): properties_text(_for_file(broker.properties))
            for broker in desired.brokers.values()
        }
        before = self.state.files()
        files |= {p: before[p] for p in map(self.state.pod_of, desired.leaving) if p in before}
        owner = owner_reference("KafkaCluster", API_VERSION, desired.name, self.resource.uid)
        image = self._image(desired.spec)
        objects = manifests(desired, self.state.racks, files, owner, image)
        self._grow_volumes(desired)
        for wanted in objects:
            self._apply(wanted)
        self._label_claims()
        self._sweep({(one["kind"], one["metadata"]["name"]) for one in objects})

    def start(self, broker: int, settings: Mapping[str, str] | None) -> None:  # noqa: ARG002
        """Its StatefulSet makes the pod, with the settings that were written down."""
        rack, ordinal = self.state.place_of(broker)
        self._scale(rack, max(self.state.racks[rack].replicas, ordinal + 1))

    def restart(self, broker: int, settings: Mapping[str, str]) -> None:  # noqa: ARG002
        pod = self.state.pods.get(self.state.pod_of(broker))
        if pod is None or pod.metadata is None or pod.metadata.deletionTimestamp is not None:
            return
        metadata = ObjectMeta(name=pod.metadata.name, namespace=pod.metadata.namespace)
        only_this = DeleteOptions(preconditions=Preconditions(uid=pod.metadata.uid))
        eviction = Pod.Eviction(metadata=metadata, deleteOptions=only_this)
        try:
            self._client.create(eviction, metadata.name or "", namespace=self.resource.namespace)
        except ApiError as error:
            # Gone or replaced meanwhile, or the budget says no: the next pass looks again.
            if error.status.code not in (NOT_FOUND, CONFLICT, TOO_MANY):
                raise

    def stop(self, broker: int) -> None:
        rack, ordinal = self.state.place_of(broker)
        above = self.state.racks[rack].ids[ordinal + 1 : self.state.racks[rack].replicas]
        assert not above, (
            f"broker {broker} cannot stop before {above}: a StatefulSet ends from above"
        )
        self._scale(rack, min(self.state.racks[rack].replicas, ordinal))

    def remove(self, broker: int, *, delete_volumes: bool) -> None:
        name, _ = self.state.place_of(broker)
        rack = self.state.racks[name]
        if delete_volumes:
            pod = self.state.pod_of(broker)
            for claim in self.state.claims:
                if claim.removeprefix("data-").partition("-")[2] == pod:
                    self._delete(PersistentVolumeClaim, claim)
        removed = ",".join(map(str, sorted(rack.removed | {broker})))
        change = {"metadata": {"annotations": {names.REMOVED_IDS_ANNOTATION: removed}}}
        self._patch(StatefulSet, names.statefulset_name(self.resource.name, name), change)
        self.state.racks[name] = replace(rack, removed=rack.removed | {broker})

    # -- writes ------------------------------------------------------------------------------------

    def _apply(self, wanted: Object) -> None:
        digest = hashlib.sha256(msgspec.json.encode(wanted, order="deterministic")).hexdigest()[:16]
        metadata = wanted["metadata"]
        annotations = {**metadata.get("annotations", {}), names.APPLIED_ANNOTATION: digest}
        marked = {**wanted, "metadata": {**metadata, "annotations": annotations}}
        kind: Any = codecs.from_dict(marked)
        try:
            found = self._client.get(type(kind), metadata["name"], namespace=metadata["namespace"])
        except ApiError as error:
            if error.status.code != NOT_FOUND:
                raise
        else:
            if _contains(found.to_dict(), marked):
                return
        self._client.apply(kind, field_manager=names.FIELD_MANAGER, force=True)

    def _scale(self, rack: str, replicas: int) -> None:
        found = self.state.racks[rack]
        if found.replicas != replicas:
            name = names.statefulset_name(self.resource.name, rack)
            self._patch(StatefulSet, name, {"spec": {"replicas": replicas}})
            self.state.racks[rack] = replace(found, replicas=replicas)

    def _grow_volumes(self, desired: DesiredCluster) -> None:
        """Claims grow in place; a StatefulSet cannot change its template and is made anew.

        Its pods go on meanwhile: they are orphans until the new one adopts them.
        """
        wanted = desired.spec.storage
        for name, claim in self.state.claims.items():
            asked = (claim.spec.resources if claim.spec else None) or None
            size = ((asked.requests if asked else None) or {}).get("storage", "0")
            if quantity_bytes(str(size)) < quantity_bytes(wanted.size):
                grown = {"spec": {"resources": {"requests": {"storage": wanted.size}}}}
                self._patch(PersistentVolumeClaim, name, grown)
        for rack, found in self.state.sets.items():
            templates = (found.spec.volumeClaimTemplates if found.spec else None) or []
            sizes = [
                ((t.spec.resources.requests or {}) if t.spec and t.spec.resources else {}).get(
                    "storage"
                )
                for t in templates
            ]
            if sizes != [wanted.size] * wanted.volumes:
                name = names.statefulset_name(self.resource.name, rack)
                self._delete(StatefulSet, name, cascade=CascadeType.ORPHAN)

    def _label_claims(self) -> None:
        """Which broker's data it is: the ids outlive the StatefulSet on the claims."""
        for rack in self.state.racks.values():
            for ordinal, broker in enumerate(rack.ids):
                pod = names.pod_name(self.resource.name, rack.name, ordinal)
                for volume in range(self.resource.spec.storage.volumes):
                    name = names.claim_name(volume, pod)
                    claim = self.state.claims.get(name)
                    labels = (claim.metadata.labels if claim and claim.metadata else None) or {}
                    if claim and labels.get(names.BROKER_ID_LABEL) != str(broker):
                        label = {"metadata": {"labels": {names.BROKER_ID_LABEL: str(broker)}}}
                        self._patch(PersistentVolumeClaim, name, label)

    def _sweep(self, wanted: set[tuple[str, str]]) -> None:
        """ConfigMaps that no pod names any more, and services of brokers that are gone."""
        used = {
            volume.configMap.name
            for pod in self.state.pods.values()
            for volume in (pod.spec.volumes if pod.spec else None) or ()
            if volume.configMap is not None
        }
        for name in self.state.config_maps:
            if name not in used and ("ConfigMap", name) not in wanted:
                self._delete(ConfigMap, name)
        for name in self.state.services:
            if ("Service", name) not in wanted:
                self._delete(Service, name)

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


def _for_file(settings: Mapping[str, str]) -> dict[str, str]:
    made = dict(settings)
    if "EXTERNAL://" in made.get("listeners", ""):
        made["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"
        made["inter.broker.listener.name"] = "PLAINTEXT"
    if any("${env:" in value for value in made.values()):
        made["config.providers"] = "env"
        made["config.providers.env.class"] = (
            "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
        )
    return made


def _cluster_id(uid: str) -> str:
    """A new cluster is called by the uid of its resource, in Kafka's spelling."""
    return urlsafe_b64encode(UUID(uid).bytes).decode().rstrip("=")


def _contains(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; the API server and others may have added to it."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _contains(found.get(key), value) or (value in ({}, [], "", None) and key not in found)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) >= len(wanted)
            and all(_contains(a, b) for a, b in zip(found, wanted, strict=False))
        )
    return bool(found == wanted)
