"""What Kubernetes has of one cluster, read at the start of a pass.

Nothing here is the operator's own memory: broker ids are annotations of the StatefulSets and labels
of the claims, settings are in the ConfigMaps that pods name. An operator that begins anew, or a
StatefulSet that somebody deleted, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec
from lightkube import Client
from lightkube.models.core_v1 import ContainerStatus
from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Service

from odradek_operator.cluster.kubernetes import names
from odradek_operator.cluster.kubernetes.manifests import Rack
from odradek_operator.observed import ObservedBroker, Phase

CRASHES_MIN = 2  # a container that ended once may have been unlucky


@dataclass
class ClusterState:
    cluster: str
    racks: dict[str, Rack] = field(default_factory=dict)
    sets: dict[str, StatefulSet] = field(default_factory=dict)  # by rack
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, PersistentVolumeClaim] = field(default_factory=dict)
    config_maps: dict[str, ConfigMap] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)

    def pod_of(self, broker: int) -> str:
        rack, ordinal = self.place_of(broker)
        return names.pod_name(self.cluster, rack, ordinal)

    def place_of(self, broker: int) -> tuple[str, int]:
        for rack in self.racks.values():
            if broker in rack.ids:
                return rack.name, rack.ids.index(broker)
        raise KeyError(f"broker {broker}")

    def add(self, brokers: Mapping[int, str]) -> None:
        """Brokers (id → rack) that are to exist get the next places of their racks."""
        known = {broker for rack in self.racks.values() for broker in rack.ids}
        for broker, name in sorted(brokers.items()):
            rack = self.racks.setdefault(name, Rack(name))
            if broker not in known:
                rack = replace(rack, ids=(*rack.ids, broker))
            self.racks[name] = replace(rack, removed=rack.removed - {broker})

    @property
    def cluster_id(self) -> str:
        """Of the data on the claims; empty if there are none."""
        for claim in self.claims.values():
            if found := _labels(claim).get(names.CLUSTER_ID_LABEL):
                return found
        return ""

    def files(self) -> dict[str, str]:
        """The properties file of every pod, as its StatefulSet would make it now."""
        found: dict[str, str] = {}
        for one in self.sets.values():
            template = one.spec.template.spec if one.spec else None
            for volume in (template.volumes if template else None) or ():
                config = volume.configMap and self.config_maps.get(volume.configMap.name or "")
                for name, text in ((config.data if config else None) or {}).items():
                    found[name.removesuffix(".properties")] = text
        return found

    # -- brokers -----------------------------------------------------------------------------------

    def observe(self, rack: Rack) -> Iterable[ObservedBroker]:
        for ordinal, broker in enumerate(rack.ids):
            if broker in rack.removed:
                continue
            pod = self.pods.get(names.pod_name(self.cluster, rack.name, ordinal))
            if pod is None:
                phase = Phase.STARTING if ordinal < rack.replicas else Phase.STOPPED
                yield ObservedBroker(broker, rack.name, phase)
            else:
                phase, since, detail = phase_of(pod)
                yield ObservedBroker(
                    broker, rack.name, phase, since, self.started_with(pod), detail
                )

    def started_with(self, pod: Pod) -> dict[str, str]:
        """The settings of a pod: its file, and what else would need a restart."""
        assert pod.metadata is not None
        found: dict[str, str] = {}
        for volume in (pod.spec.volumes if pod.spec else None) or ():
            config = volume.configMap and self.config_maps.get(volume.configMap.name or "")
            if config:
                text = (config.data or {}).get(f"{pod.metadata.name}.properties", "")
                found |= read_properties(text)
        special = (pod.metadata.annotations or {}).get(names.SETTINGS_ANNOTATION, "{}")
        return found | msgspec.json.decode(special, type=dict[str, str])


def read_state(client: Client, namespace: str, cluster: str) -> ClusterState:
    state = ClusterState(cluster)
    labels: dict[str, Any] = dict(names.selector(cluster))
    for one in client.list(StatefulSet, namespace=namespace, labels=labels):
        state.sets[_annotations(one).get(names.RACK_ANNOTATION, "")] = one
    for claim in client.list(PersistentVolumeClaim, namespace=namespace, labels=labels):
        state.claims[_name(claim)] = claim
    for pod in client.list(Pod, namespace=namespace, labels=labels):
        state.pods[_name(pod)] = pod
    for config in client.list(ConfigMap, namespace=namespace, labels=labels):
        state.config_maps[_name(config)] = config
    for service in client.list(Service, namespace=namespace, labels=labels):
        state.services[_name(service)] = service
    state.racks = _racks(state)
    return state


def _racks(state: ClusterState) -> dict[str, Rack]:
    racks = {name: _rack(name, one) for name, one in state.sets.items()}
    for rack, ids in _ids_on_claims(state.claims.values()).items():
        if rack not in racks:
            # The cluster, or the StatefulSet, was deleted and its volumes were kept.
            racks[rack] = Rack(rack, ids, 0, frozenset(ids))
    return racks


def _rack(name: str, found: StatefulSet) -> Rack:
    annotations = _annotations(found)
    return Rack(
        name,
        _numbers(annotations.get(names.BROKER_IDS_ANNOTATION, "")),
        (found.spec.replicas if found.spec else None) or 0,
        frozenset(_numbers(annotations.get(names.REMOVED_IDS_ANNOTATION, ""))),
    )


def _ids_on_claims(claims: Iterable[PersistentVolumeClaim]) -> dict[str, tuple[int, ...]]:
    """By rack, in the order of the ordinals at the end of the claims' names."""
    found: dict[str, dict[int, int]] = {}
    for claim in claims:
        broker = _labels(claim).get(names.BROKER_ID_LABEL)
        if broker is not None:
            rack = _annotations(claim).get(names.RACK_ANNOTATION, "")
            ordinal = int(_name(claim).rpartition("-")[2])
            found.setdefault(rack, {})[ordinal] = int(broker)
    return {rack: tuple(ids[n] for n in sorted(ids)) for rack, ids in found.items()}


# -- pods ------------------------------------------------------------------------------------------


def phase_of(pod: Pod) -> tuple[Phase, float, str]:
    """Its phase, since when, and for one that does not come up: why."""
    assert pod.metadata is not None
    created = _seconds(pod.metadata.creationTimestamp)
    if pod.metadata.deletionTimestamp is not None:
        return Phase.STARTING, _seconds(pod.metadata.deletionTimestamp), "being restarted"
    conditions = {c.type: c for c in (pod.status.conditions if pod.status else None) or ()}
    ready = conditions.get("Ready")
    if ready is not None and ready.status == "True":
        return Phase.READY, _seconds(ready.lastTransitionTime), ""
    scheduled = conditions.get("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return Phase.CRASHED, _seconds(scheduled.lastTransitionTime), scheduled.message or ""
    for container in (pod.status.containerStatuses if pod.status else None) or ():
        if why := _why_not_running(container):
            return Phase.CRASHED, created, why
    return Phase.STARTING, created, ""


def _why_not_running(container: ContainerStatus) -> str:
    waiting = container.state.waiting if container.state else None
    if waiting is not None and (waiting.reason or "").startswith(("ErrImage", "ImagePull")):
        return waiting.message or waiting.reason or ""
    ended = container.lastState.terminated if container.lastState else None
    if container.restartCount >= CRASHES_MIN and ended is not None:
        said = (ended.message or "").strip() or f"exit code {ended.exitCode}"
        return f"it ended {container.restartCount} times, last with: {said}"
    return ""


def read_properties(text: str) -> dict[str, str]:
    """Of files that `properties_text` wrote."""
    pairs = (line.partition("=") for line in text.splitlines() if line)
    return {name: value.replace("\\\\", "\\") for name, _, value in pairs}


def properties_text(settings: Mapping[str, str]) -> str:
    """As Kafka reads it; values are one line, which the API checks."""
    return "".join(
        "{}={}\n".format(name, value.replace("\\", "\\\\"))
        for name, value in sorted(settings.items())
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(",") if one)


def _seconds(when: datetime | None) -> float:
    return when.timestamp() if when else 0.0


Named = StatefulSet | Pod | PersistentVolumeClaim | ConfigMap | Service


def _name(found: Named) -> str:
    assert found.metadata is not None
    return found.metadata.name or ""


def _labels(found: Named) -> dict[str, str]:
    return (found.metadata.labels if found.metadata else None) or {}


def _annotations(found: Named) -> dict[str, str]:
    return (found.metadata.annotations if found.metadata else None) or {}
