"""Rules between the fields of a KafkaCluster's spec, for the API server (CEL) and for parse.py."""

from __future__ import annotations

from odradek_api.base import Rule, quantity_bytes
from odradek_api.kafka_cluster.spec import CONTROLLER_PORT, KafkaClusterSpec

CONTROLLERS_FIXED = (
    "dedicated controllers cannot be added to a cluster or removed from it: create a new cluster "
    "and copy the topics with `odradek migrate`"
)
CONTROLLER_COUNT_FIXED = "the number of controllers cannot change"

CLUSTER_RULES = (
    Rule(
        "!has(self.replication.factor) || self.replication.factor <= self.brokers",
        "must not exceed the number of brokers (spec.brokers)",
        "replication.factor",
        lambda new, _: (new.replication.factor or 1) <= new.brokers,
    ),
    Rule(
        "!has(self.replication.minInsyncReplicas) || self.replication.minInsyncReplicas <= "
        "(has(self.replication.factor) ? self.replication.factor : "
        "(self.brokers < 3 ? self.brokers : 3))",
        "must not exceed the replication factor: no write with acks=all would ever succeed",
        "replication.minInsyncReplicas",
        lambda new, _: (
            (new.replication.min_insync_replicas or 1)
            <= (new.replication.factor or min(3, new.brokers))
        ),
    ),
    Rule(
        "",
        "must not name a rack twice",
        "racks.names",
        lambda new, _: len(set(new.racks.names)) == len(new.racks.names),
    ),
    Rule(
        "self.listeners.port != self.metrics.port && (!has(self.listeners.external) || "
        "(self.listeners.external.port != self.listeners.port && "
        "self.listeners.external.port != self.metrics.port))",
        "listeners.port, listeners.external.port and metrics.port must differ",
        "listeners",
        lambda new, _: len(set(_ports(new))) == len(_ports(new)),
    ),
    Rule(
        f"self.engine != 'apache' || (self.listeners.port != {CONTROLLER_PORT} && "
        f"self.metrics.port != {CONTROLLER_PORT} && (!has(self.listeners.external) || "
        f"self.listeners.external.port != {CONTROLLER_PORT}))",
        f"port {CONTROLLER_PORT} is reserved for the controllers of engine apache: choose another "
        "listeners.port, listeners.external.port or metrics.port",
        "listeners",
        lambda new, _: new.engine != "apache" or CONTROLLER_PORT not in _ports(new),
    ),
    Rule(
        "self.engine == oldSelf.engine",
        "the engine of a cluster cannot change: create a new cluster and copy the topics with "
        "`odradek migrate`",
        "engine",
        lambda new, old: old is None or new.engine == old.engine,
    ),
    Rule(
        "!has(self.controllers) || self.engine == 'apache'",
        "dedicated controllers need engine apache; brokers of engine embedded are controllers too",
        "controllers",
        lambda new, _: new.controllers is None or new.engine == "apache",
    ),
    Rule(
        "!has(self.controllers) || self.controllers.replicas % 2 == 1",
        "must be odd: an even number tolerates no more failures than one controller fewer",
        "controllers.replicas",
        lambda new, _: new.controllers is None or new.controllers.replicas % 2 == 1,
    ),
    Rule(
        "has(self.controllers) == has(oldSelf.controllers)",
        CONTROLLERS_FIXED,
        "controllers",
        lambda new, old: old is None or (new.controllers is None) == (old.controllers is None),
    ),
    Rule(
        "!has(self.controllers) || !has(oldSelf.controllers) || "
        "self.controllers.replicas == oldSelf.controllers.replicas",
        CONTROLLER_COUNT_FIXED,
        "controllers.replicas",
        lambda new, old: (
            old is None
            or new.controllers is None
            or old.controllers is None
            or new.controllers.replicas == old.controllers.replicas
        ),
    ),
    Rule(
        "!has(self.controllers) || !has(oldSelf.controllers) || "
        "quantity(self.controllers.storage.size).compareTo("
        "quantity(oldSelf.controllers.storage.size)) >= 0",
        "cannot shrink",
        "controllers.storage.size",
        lambda new, old: (
            old is None
            or new.controllers is None
            or old.controllers is None
            or quantity_bytes(new.controllers.storage.size)
            >= quantity_bytes(old.controllers.storage.size)
        ),
    ),
    Rule(
        "quantity(self.storage.size).compareTo(quantity(oldSelf.storage.size)) >= 0",
        "cannot shrink",
        "storage.size",
        lambda new, old: (
            old is None or quantity_bytes(new.storage.size) >= quantity_bytes(old.storage.size)
        ),
    ),
    Rule(
        "self.storage.volumes >= oldSelf.storage.volumes",
        "volumes cannot be removed",
        "storage.volumes",
        lambda new, old: old is None or new.storage.volumes >= old.storage.volumes,
    ),
)


def _ports(spec: KafkaClusterSpec) -> list[int]:
    external = spec.listeners.external
    return [spec.listeners.port, spec.metrics.port, *([external.port] if external else [])]
