"""The Kubernetes objects of one cluster, read at the start of a pass.

The operator keeps no state of its own: broker ids are annotations of the StatefulSets and labels of
the claims, settings are in the ConfigMaps that pods mount. So nothing is lost when the operator
restarts or a StatefulSet is deleted by hand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from lightkube import Client
from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.core_v1 import (
    ConfigMap,
    PersistentVolumeClaim,
    Pod,
    Service,
    ServiceAccount,
)
from lightkube.resources.networking_v1 import NetworkPolicy
from lightkube.resources.policy_v1 import PodDisruptionBudget

from odradek_operator.kafka.observed import ObservedBroker, Phase
from odradek_operator.kafka.placement import is_controller
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.pods import ended_of, phase_of
from odradek_operator.kubernetes.properties import read_properties, voters_of
from odradek_operator.kubernetes.racks import Rack

KINDS = (StatefulSet, PersistentVolumeClaim, Pod, ConfigMap, Service, ServiceAccount,
         PodDisruptionBudget, NetworkPolicy)  # fmt: skip


@dataclass
class ClusterState:
    cluster: str
    racks: dict[str, Rack] = field(default_factory=dict)
    controllers: dict[str, Rack] = field(default_factory=dict)  # racks of dedicated controllers
    sets: dict[str, StatefulSet] = field(default_factory=dict)  # by name
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, PersistentVolumeClaim] = field(default_factory=dict)
    config_maps: dict[str, ConfigMap] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
    objects: dict[tuple[str, str], Any] = field(default_factory=dict)  # by kind and name

    def pod_of(self, node: int) -> str:
        rack, ordinal = self.place_of(node)
        return rack.pod_name(self.cluster, ordinal)

    def place_of(self, node: int) -> tuple[Rack, int]:
        for rack in self.all_racks():
            if node in rack.ids:
                return rack, rack.ids.index(node)
        raise KeyError(f"node {node}")

    def all_racks(self) -> list[Rack]:
        return [*self.controllers.values(), *self.racks.values()]

    def put(self, rack: Rack) -> None:
        (self.controllers if rack.controllers else self.racks)[rack.name] = rack

    def with_nodes(self, nodes: Mapping[int, str]) -> ClusterState:
        """A copy in which these nodes (id → rack) have a place; new ones are last in their rack."""
        made = replace(self, racks=dict(self.racks), controllers=dict(self.controllers))
        known = {node for rack in self.all_racks() for node in rack.ids}
        for node, name in sorted(nodes.items()):
            racks = made.controllers if is_controller(node) else made.racks
            rack = racks.get(name) or Rack(name, controllers=is_controller(node))
            if node not in known:
                rack = replace(rack, ids=(*rack.ids, node))
            made.put(replace(rack, removed=rack.removed - {node}))
        return made

    @property
    def cluster_id(self) -> str:
        """The cluster id of the data on the claims; empty if there are no claims."""
        for claim in self.claims.values():
            if found := _annotations(claim).get(names.CLUSTER_ID_ANNOTATION):
                return found
        return ""

    @property
    def formation(self) -> tuple[int, ...]:
        """The nodes that formed the cluster, from the settings of the nodes that still exist."""
        for text in self.files().values():
            if voters := read_properties(text).get("controller.quorum.voters") or voters_of(text):
                return tuple(sorted(int(one.partition("@")[0]) for one in voters.split(",")))
        return ()

    def files(self) -> dict[str, str]:
        """The properties file of every pod, by its StatefulSet's current template."""
        found: dict[str, str] = {}
        for one in self.sets.values():
            for name, text in self._config_of(one.spec.template if one.spec else None).items():
                found[name.removesuffix(".properties")] = text
        return found

    def _config_of(self, pod: Any) -> Mapping[str, str]:
        """The files that a pod, or a pod's template, mounts."""
        for name in config_names(pod):
            if config := self.config_maps.get(name):
                return config.data or {}
        return {}

    # -- brokers -----------------------------------------------------------------------------------

    def observe(
        self, rack: Rack, now: float, node_racks: Mapping[str, str]
    ) -> Iterable[ObservedBroker]:
        for ordinal, broker in enumerate(rack.ids):
            if broker in rack.removed:
                continue
            pod = self.pods.get(rack.pod_name(self.cluster, ordinal))
            if pod is None:
                alive = rack.set_name(self.cluster) in self.sets and ordinal < rack.replicas
                phase = Phase.STARTING if alive else Phase.STOPPED
                yield ObservedBroker(broker, rack.name, phase)
                continue
            phase, since, detail = phase_of(pod, now)
            unseen = not self._config_of(pod)
            if unseen and phase is Phase.STARTING and not self._is_written_again(pod, rack):
                # Created from a template that was replaced at that moment; it can never start.
                phase, detail = Phase.CRASHED, "the ConfigMap of its pod does not exist any more"
            node = (pod.spec.nodeName if pod.spec else None) or ""
            yield ObservedBroker(
                broker,
                rack.name,
                phase,
                since,
                self.started_with(pod),
                detail,
                node_rack=node_racks.get(node, "") if rack.name else "",
                file_unseen=unseen and self._is_written_again(pod, rack),
                wants_restart=self._resize_pending(pod),
                ended=ended_of(pod),
                host_ip=(pod.status.hostIP if pod.status else None) or "",
            )

    def _is_written_again(self, pod: Pod, rack: Rack) -> bool:
        """Whether a deleted ConfigMap is still in the template: then this pass creates it again."""
        found = self.sets.get(rack.set_name(self.cluster))
        template = found.spec.template if found and found.spec else None
        return template is None or config_names(template) == config_names(pod)

    def _resize_pending(self, pod: Pod) -> str:
        """Some volumes get their larger file system only when the pod is created again."""
        assert pod.metadata is not None
        if pod.metadata.deletionTimestamp is not None:
            return ""  # it is being replaced
        for name, claim in self.claims.items():
            for c in (claim.status.conditions if claim.status else None) or ():
                pending = c.type == "FileSystemResizePending" and c.status == "True"
                own = name.removeprefix("data-").partition("-")[2] == name_of(pod)
                made, since = pod.metadata.creationTimestamp, c.lastTransitionTime
                if pending and own and made and since and made <= since:
                    return f"the file system of {name} is expanded by a restart"
        return ""

    def started_with(self, pod: Pod) -> dict[str, str]:
        """The settings that a pod was created with: its file and its @-settings."""
        special = _annotations(pod).get(names.SETTINGS_ANNOTATION, "{}")
        text = self._config_of(pod).get(f"{name_of(pod)}.properties", "")
        return read_properties(text) | msgspec.json.decode(special, type=dict[str, str])

    def template_setting(self, name: str) -> str:
        """An @-setting of the pod templates."""
        for one in self.sets.values():
            template = one.spec.template if one.spec else None
            special = _annotations(template).get(names.SETTINGS_ANNOTATION, "{}")
            if found := msgspec.json.decode(special, type=dict[str, str]).get(name):
                return found
        return ""


def read_state(
    client: Client, namespace: str, cluster: str, existing: Collection[int] = ()
) -> ClusterState:
    """`existing`: nodes of the last status, in case a StatefulSet is missing."""
    state = ClusterState(cluster)
    labels: dict[str, Any] = dict(names.selector(cluster))
    for kind in KINDS:
        for one in client.list(kind, namespace=namespace, labels=labels):
            state.objects[kind.__name__, name_of(one)] = one
    for (kind_name, name), one in state.objects.items():
        match kind_name:
            case "StatefulSet":
                state.sets[name] = one
            case "Pod":
                state.pods[name] = one
            case "PersistentVolumeClaim":
                state.claims[name] = one
            case "ConfigMap":
                state.config_maps[name] = one
            case "Service":
                state.services[name] = one
    for rack in _racks(state, existing):
        state.put(rack)
    return state


def config_names(pod: Any) -> list[str]:
    """The ConfigMaps that a pod, or a pod's template, mounts."""
    volumes = (pod.spec.volumes if pod and pod.spec else None) or ()
    return [v.configMap.name for v in volumes if v.configMap is not None and v.configMap.name]


def secret_names(volumes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The Secrets among a pod's volumes, also those of projected ones."""
    found = set()
    for volume in volumes:
        if name := (volume.get("secret") or {}).get("secretName"):
            found.add(str(name))
        for source in (volume.get("projected") or {}).get("sources") or ():
            if name := (source.get("secret") or {}).get("name"):
                found.add(str(name))
    return sorted(found)


# -- racks -----------------------------------------------------------------------------------------


def _racks(state: ClusterState, existing: Collection[int]) -> list[Rack]:
    racks = [_rack(one) for one in state.sets.values()]
    known = {rack.set_name(state.cluster) for rack in racks}
    for (name, dedicated), ids in _ids_left_behind(state).items():
        rack = Rack(name, ids, controllers=dedicated)
        if rack.set_name(state.cluster) not in known:
            # The StatefulSet was deleted, or the whole cluster and its volumes were kept.
            alive = [n for n in range(len(ids)) if rack.pod_name(state.cluster, n) in state.pods]
            removed = frozenset(ids) - set(existing) - {ids[n] for n in alive}
            # Its pods may live on as orphans: the new set adopts them and must not end them.
            racks.append(replace(rack, replicas=max(alive, default=-1) + 1, removed=removed))
    return racks


def _rack(found: StatefulSet) -> Rack:
    annotations = _annotations(found)
    ids = _numbers(annotations.get(names.BROKER_IDS_ANNOTATION, ""))
    replicas = (found.spec.replicas if found.spec else None) or 0
    removed = frozenset(_numbers(annotations.get(names.REMOVED_IDS_ANNOTATION, "")))
    labels = (found.metadata.labels if found.metadata else None) or {}
    # A manual scale-up does not count: a pod without a broker id has no settings.
    return Rack(
        annotations.get(names.RACK_ANNOTATION, ""),
        ids,
        min(replicas, len(ids)),
        removed,
        controllers=labels.get(names.ROLE_LABEL) == names.CONTROLLER,
    )


def _ids_left_behind(state: ClusterState) -> dict[tuple[str, bool], tuple[int, ...]]:
    """Node ids by (rack, dedicated controllers?), in the order of the ordinals.

    Read from the labels of claims and from the properties files.
    """
    found: dict[tuple[str, bool], dict[int, int]] = {}

    def add(rack: str, ordinal: str, node: str) -> None:
        place = rack, is_controller(int(node))
        found.setdefault(place, {})[int(ordinal)] = int(node)

    for config in state.config_maps.values():
        for file, text in (config.data or {}).items():
            settings = read_properties(text)
            ordinal = re.fullmatch(r".*-(\d+)\.properties", file)
            if ordinal and "node.id" in settings:
                add(settings.get("broker.rack", ""), ordinal[1], settings["node.id"])
    for claim in state.claims.values():
        labels = (claim.metadata.labels if claim.metadata else None) or {}
        if names.BROKER_ID_LABEL in labels:
            rack = _annotations(claim).get(names.RACK_ANNOTATION, "")
            add(rack, name_of(claim).rpartition("-")[2], labels[names.BROKER_ID_LABEL])
    return {
        place: tuple(ids[n] for n in range(len(ids)))
        for place, ids in found.items()
        if ids.keys() == set(range(len(ids)))  # with a gap, the order is unknown
    }


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(",") if one)


def name_of(found: Any) -> str:
    return str(found.metadata.name)


def _annotations(found: Any) -> dict[str, str]:
    return (found.metadata.annotations if found and found.metadata else None) or {}
