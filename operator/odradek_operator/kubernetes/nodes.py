"""A cache of the labels of the nodes that brokers can run on."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from odradek_operator.kubernetes.objects import Document

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


class Nodes:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._labels: dict[str, dict[str, str]] = {}

    def values(self, label: str) -> dict[str, str]:
        """Node → rack, if `label` is spec.racks.topologyKey."""
        with self._lock:
            return {node: at[label] for node, at in self._labels.items() if at.get(label)}

    def put(self, node: Document) -> bool:
        """Returns whether the labels changed."""
        name, labels = node["metadata"]["name"], dict(node["metadata"].get("labels") or {})
        with self._lock:
            before = self._labels.get(name)
            if _takes_brokers(node):
                self._labels[name] = labels
            else:
                self._labels.pop(name, None)
            return self._labels.get(name) != before

    def drop(self, node: Document) -> bool:
        with self._lock:
            return self._labels.pop(node["metadata"]["name"], None) is not None

    def replace_all(self, nodes: Iterable[Document]) -> None:
        found = [node for node in nodes if _takes_brokers(node)]
        with self._lock:
            self._labels = {
                n["metadata"]["name"]: dict(n["metadata"].get("labels") or {}) for n in found
            }


def _takes_brokers(node: Document) -> bool:
    """False for a tainted control-plane node: its zone may have no other node."""
    taints: list[dict[str, Any]] = (node.get("spec") or {}).get("taints") or []
    return not any(
        t.get("key") == CONTROL_PLANE and t.get("effect") == "NoSchedule" for t in taints
    )
