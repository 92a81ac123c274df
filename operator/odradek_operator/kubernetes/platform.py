"""The nodes of one cluster as StatefulSets and pods: the Kubernetes side of the Platform port.

A pass reads the state once (`refresh`); observing works on that state and changes nothing. Objects
are written through writer.py, which writes only differences.

A pod is restarted through the eviction API with its uid as a precondition: never another pod than
the one that was planned for, and never against the PodDisruptionBudget.
"""

from __future__ import annotations

import hashlib
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from uuid import UUID

import msgspec
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.core_v1 import PersistentVolumeClaim, Secret
from lightkube.utils.quantity import parse_quantity

from odradek_api.base import API_VERSION, Resource, owner_reference
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.kafka_cluster.status import KafkaClusterStatus
from odradek_operator.admin.kafka_admin import AdminError, NotYetError
from odradek_operator.kafka.desired import (
    SECRETS,
    VOTERS_MAX,
    ClusterLayout,
    DesiredCluster,
    Endpoint,
    Known,
)
from odradek_operator.kafka.links import conflict, decide, with_links
from odradek_operator.kafka.observed import ObservedBroker, Phase
from odradek_operator.kafka.placement import is_controller
from odradek_operator.kafka.routes import ClusterRoute, operator_route
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.endpoints import endpoint, external_address
from odradek_operator.kubernetes.manifests import manifests
from odradek_operator.kubernetes.pod_manifests import Object
from odradek_operator.kubernetes.pods import phase_of
from odradek_operator.kubernetes.properties import properties_text, read_properties
from odradek_operator.kubernetes.racks import Rack
from odradek_operator.kubernetes.state import (
    ClusterState,
    config_names,
    name_of,
    read_state,
    secret_names,
)
from odradek_operator.kubernetes.writer import ObjectWriter, applied_digest, contains, digest_of

ADDRESS_GRACE_S = 120.0  # a cloud may need a minute to create a load balancer
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
        """`status`: the last one; it records which nodes formed the cluster.

        `applied`: see ObjectWriter. `node_racks`: node → rack, as far as it is known.
        """
        self.resource = resource
        self.state = ClusterState(resource.name)
        self._client = client
        self._status = status
        self._image = image
        self._writer = ObjectWriter(client, resource.namespace, applied)
        self._node_racks = node_racks or {}
        self._secrets = ""
        self.problems: list[str] = []  # of this pass: what Kubernetes refused
        self._restarts: list[bool] = []  # of this pass: whether each one was allowed

    def refresh(self) -> None:
        existing = [b.id for b in self._status.brokers] + [c.id for c in self._status.controllers]
        place = (self.resource.namespace, self.resource.name)
        self.state = read_state(self._client, *place, existing)
        self._restarts = []
        self._secrets = self._hash_secrets()

    # -- observe -----------------------------------------------------------------------------------

    def known(self) -> Known:
        racks = self.state.racks.values()
        return Known(
            existing={b: r.name for r in racks for b in r.ids if b not in r.removed},
            kept={b: r.name for r in racks for b in r.removed},
            controllers={b: r.name for r in self.state.controllers.values() for b in r.ids},
            formation=tuple(self._status.formation) or self.state.formation or self._formed(),
            cluster_id=self.state.cluster_id or _cluster_id(self.resource.uid),
            secrets=self._secrets,
            started_with=self._started_with(),
        )

    def _formed(self) -> tuple[int, ...]:
        """Nodes that formed an earlier cluster of this name, found by its retained volumes."""
        state = self.state
        if self.resource.spec.engine != "apache":
            return ()
        if state.controllers:
            return tuple(sorted(b for rack in state.controllers.values() for b in rack.ids))
        if self.resource.spec.controllers is None or not state.claims:
            return ()
        return tuple(sorted(b for rack in state.racks.values() for b in rack.ids)[:VOTERS_MAX])

    def observe(self) -> Mapping[int, ObservedBroker]:
        now, racks = time.time(), self.state.all_racks()
        nodes = (f for rack in racks for f in self.state.observe(rack, now, self._node_racks))
        return {node.id: node for node in nodes}

    def _hash_secrets(self) -> str:
        """A hash of the Secrets that the pods mount; the last one if a Secret cannot be read."""
        versions = []
        for name in secret_names(self.resource.spec.pod_template.volumes):
            try:
                found = self._client.get(Secret, name, namespace=self.resource.namespace)
            except ApiError as error:
                if error.status.code not in (FORBIDDEN, NOT_FOUND):
                    raise
                problem = f"Secret {name} cannot be read, so changes of it are not noticed: "
                self.problems.append(f"{problem}{error.status.message}")
                return self.state.template_setting(SECRETS)
            versions.append((name, found.data))
        if not versions:
            return ""
        content = msgspec.json.encode(versions, order="deterministic")
        return hashlib.sha256(content).hexdigest()[:12]

    def endpoints(self, layout: ClusterLayout) -> Mapping[int, Endpoint]:
        planned = self.state.with_nodes(layout.nodes)
        everyone = [node for rack in planned.all_racks() for node in rack.ids]
        return {node: endpoint(planned, node, self.resource, layout) for node in everyone}

    def _started_with(self) -> dict[int, Mapping[str, str]]:
        """The settings of all nodes that exist: of its pod, else of its StatefulSet's template."""
        files = self.state.files()
        found: dict[int, Mapping[str, str]] = {}
        for rack in self.state.all_racks():
            for ordinal, node in enumerate(rack.ids):
                text = files.get(rack.pod_name(self.resource.name, ordinal))
                if text is not None and node not in rack.removed:
                    found[node] = read_properties(text)
        return found | self.running()

    def conflict(self) -> str:
        """Why the listeners cannot become what the spec says; else empty."""
        nodes = self._started_with()
        spec = self.resource.spec
        return conflict(with_links(spec, decide(spec, nodes), nodes.values()))

    def running(self) -> dict[int, dict[str, str]]:
        """Nodes whose pod exists → the settings that the pod was created with."""
        found = {}
        for rack in self.state.all_racks():
            for ordinal, node in enumerate(rack.ids):
                pod = self.state.pods.get(rack.pod_name(self.resource.name, ordinal))
                if pod is not None and (settings := self.state.started_with(pod)):
                    found[node] = settings
        return found

    def host_ips(self) -> dict[int, tuple[str, ...]]:
        """Node → the address of the machine that its pod runs on, for listeners with node ports."""
        external = self.resource.spec.external_listeners
        if not any(one.type == "nodeport" and one.tls for one in external):
            return {}
        found: dict[int, tuple[str, ...]] = {}
        for rack in self.state.racks.values():
            for ordinal, node in enumerate(rack.ids):
                pod = self.state.pods.get(rack.pod_name(self.resource.name, ordinal))
                if pod is not None and pod.status is not None and pod.status.hostIP:
                    found[node] = (pod.status.hostIP,)
        return found

    def route(self) -> ClusterRoute:
        """How the operator reaches the brokers."""
        brokers = [s for node, s in self.running().items() if not is_controller(node)]
        found = operator_route(brokers)
        if found.tls or self.resource.spec.secured:
            return found
        return ClusterRoute(self.bootstrap())

    def metrics(self) -> dict[int, str]:
        host = f"{names.brokers_service(self.resource.name)}.{self.resource.namespace}.svc"
        port = self.resource.spec.metrics.port
        found = [b for rack in self.state.racks.values() for b in rack.ids]
        return {b: f"{self.state.pod_of(b)}.{host}:{port}" for b in found}

    def bootstrap(self) -> str:
        """The bootstrap address for clients."""
        port = self.resource.spec.client_listener.port
        name = names.bootstrap_service(self.resource.name)
        return f"{name}.{self.resource.namespace}.svc:{port}"

    def differences(self, desired: DesiredCluster) -> list[str]:
        """The changes that `apply` would make, "create Service main-brokers"; for a dry run."""
        lines = []
        for wanted in self._objects(desired, self._planned(desired)):
            key = wanted["kind"], wanted["metadata"]["name"]
            found = self.state.objects.get(key)
            if found is None:
                lines.append(f"create {' '.join(key)}")
            elif applied_digest(found) != digest_of(wanted) and not contains(
                found.to_dict(), wanted
            ):
                lines.append(f"change {' '.join(key)}")
        return lines

    # -- act ---------------------------------------------------------------------------------------

    def apply(self, desired: DesiredCluster) -> None:
        """All objects around the pods. It starts and restarts no pod."""
        self.state = self._planned(desired)
        objects = self._objects(desired, self.state)
        self._grow_claims(desired)
        for wanted in objects:
            key = wanted["kind"], wanted["metadata"]["name"]
            self._writer.apply(wanted, self.state.objects.get(key))
        self._label_claims()
        self._sweep({(one["kind"], one["metadata"]["name"]) for one in objects})

    def _planned(self, desired: DesiredCluster) -> ClusterState:
        """The state with a place for every desired node."""
        return self.state.with_nodes({node.id: node.rack for node in desired.nodes.values()})

    def _objects(self, desired: DesiredCluster, state: ClusterState) -> list[Object]:
        """`state`: with a place for every desired node."""
        files = {
            state.pod_of(node.id): properties_text(node.settings) for node in desired.nodes.values()
        }
        before = state.files()
        files |= {p: before[p] for p in map(state.pod_of, desired.leaving) if p in before}
        owner = owner_reference(API_VERSION, "KafkaCluster", desired.name, self.resource.uid)
        image = self._image(desired.spec)
        controllers = state.controllers if desired.controllers else {}
        return manifests(desired, state.racks, files, owner, image, controllers)

    def start(self, broker: int, settings: Mapping[str, str] | None) -> None:  # noqa: ARG002
        """The StatefulSet creates the pod, with the settings that `apply` wrote."""
        # Clients do not connect to controllers.
        external = () if is_controller(broker) else self.resource.spec.external_listeners
        for one in external:
            if not external_address(self.state, broker, one):
                pod = self.state.pod_of(broker)
                raise self._no_address(names.external_service(pod, one.name))
        rack, ordinal = self.state.place_of(broker)
        self._scale(rack, max(rack.replicas, ordinal + 1))

    def _no_address(self, service: str) -> Exception:
        """Pending for a new Service; an error if it has no address after ADDRESS_GRACE_S."""
        made = self.state.services.get(service)
        when = made.metadata.creationTimestamp if made and made.metadata else None
        if when is None or time.time() - when.timestamp() < ADDRESS_GRACE_S:
            return NotYetError(f"Service {service} has no external address yet")
        return AdminError(f"Service {service} still has no external address: see its Events")

    def restart(self, broker: int, settings: Mapping[str, str]) -> None:  # noqa: ARG002
        """Evicts the first pod of a step; the others are deleted, as the budget allows only one."""
        pod = self.state.pods.get(self.state.pod_of(broker))
        if pod is None or pod.metadata is None or pod.metadata.deletionTimestamp is not None:
            return
        if not all(self._restarts) or not self._template_is_current(broker):
            self._restarts.append(False)
            return
        try:
            if self._restarts:
                self._writer.delete_pod(pod)
            else:
                self._writer.evict(pod)
            self._restarts.append(True)
        except ApiError as error:
            # The pod is gone or was replaced, or the budget refuses: the next pass tries again.
            if error.status.code not in (NOT_FOUND, CONFLICT, TOO_MANY):
                raise
            self._restarts.append(False)

    def _template_is_current(self, broker: int) -> bool:
        """Until the StatefulSet controller observed the new template, a pod gets the old one."""
        rack, _ = self.state.place_of(broker)
        found = self.state.sets.get(rack.set_name(self.resource.name))
        if found is None or ("StatefulSet", name_of(found)) in self._writer.changed:
            return False
        assert found.metadata is not None
        observed = found.status.observedGeneration if found.status else None
        return (observed or 0) >= (found.metadata.generation or 0)

    def stop(self, broker: int) -> None:
        rack, ordinal = self.state.place_of(broker)
        above = rack.ids[ordinal + 1 : rack.replicas]
        if above:
            others = ", ".join(map(str, above))
            raise NotYetError(f"a StatefulSet scales down from the last pod: broker {others} first")
        self._scale(rack, min(rack.replicas, ordinal))

    def remove(self, broker: int, *, delete_volumes: bool) -> None:
        rack, _ = self.state.place_of(broker)
        if delete_volumes:
            pod = self.state.pod_of(broker)
            for claim in self.state.claims:
                if claim.removeprefix("data-").partition("-")[2] == pod:
                    self._writer.delete(PersistentVolumeClaim, claim)
        removed = ",".join(map(str, sorted(rack.removed | {broker})))
        change = {"metadata": {"annotations": {names.REMOVED_IDS_ANNOTATION: removed}}}
        self._writer.patch(StatefulSet, rack.set_name(self.resource.name), change)
        self.state.put(replace(rack, removed=rack.removed | {broker}))

    # -- writes ------------------------------------------------------------------------------------

    def _scale(self, rack: Rack, replicas: int) -> None:
        if rack.replicas != replicas:
            name = rack.set_name(self.resource.name)
            self._writer.patch(StatefulSet, name, {"spec": {"replicas": replicas}})
            self.state.put(replace(rack, replicas=replicas))

    def _grow_claims(self, desired: DesiredCluster) -> None:
        """Expands claims in place; a claim that is larger already stays as it is.

        Only a bound claim can be expanded, and only if its StorageClass allows it.
        """
        dedicated = desired.spec.controllers
        for name, claim in self.state.claims.items():
            labels = (claim.metadata.labels if claim.metadata else None) or {}
            wanted = desired.spec.storage.size
            if dedicated is not None and labels.get(names.ROLE_LABEL) == names.CONTROLLER:
                wanted = dedicated.storage.size
            asked = (claim.spec.resources if claim.spec else None) or None
            requested = ((asked.requests if asked else None) or {}).get("storage", "0")
            if _is_bound(claim) and _is_smaller(str(requested), wanted):
                grown = {"spec": {"resources": {"requests": {"storage": wanted}}}}
                try:
                    self._writer.patch(PersistentVolumeClaim, name, grown)
                except ApiError as error:
                    if error.status.code not in (FORBIDDEN, INVALID):
                        raise
                    self.problems.append(
                        f"PersistentVolumeClaim {name} cannot be expanded: {error.status.message}"
                    )

    def _label_claims(self) -> None:
        """Labels claims with the broker id, so that it outlives the StatefulSet.

        Only once the claim may hold data: before that, the scheduler, the provisioner and the
        StatefulSet controller write to it, and one of them would get a conflict.
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
                        self._writer.patch(PersistentVolumeClaim, name, label)

    def _is_ready(self, pod: str) -> bool:
        found = self.state.pods.get(pod)
        return found is not None and phase_of(found, time.time())[0] is Phase.READY

    def _sweep(self, wanted: set[tuple[str, str]]) -> None:
        """Deletes our unused objects: ConfigMaps that no pod or template mounts, old Services."""
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
                self._writer.delete(type(found), name)


def _is_bound(claim: PersistentVolumeClaim) -> bool:
    return claim.status is not None and claim.status.phase == "Bound"


def _is_smaller(quantity: str, other: str) -> bool:
    return (parse_quantity(quantity) or 0) < (parse_quantity(other) or 0)


def _cluster_id(uid: str) -> str:
    """The id of a new cluster: the uid of its resource in Kafka's base64."""
    text = urlsafe_b64encode(UUID(uid).bytes).decode().rstrip("=")
    return "A" + text[1:] if text.startswith("-") else text  # Kafka's ids never start with -
