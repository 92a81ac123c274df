"""Rules between the fields of a KafkaCluster's spec, for the API server (CEL) and for parse.py."""

from __future__ import annotations

from collections.abc import Callable

from odradek_api.base import Rule, quantity_bytes
from odradek_api.kafka_cluster.limits import (
    CONTROLLER_PORT,
    CONTROLLER_TLS_PORT,
    LISTENERS_MAX,
    REPLICATION_PORT,
)
from odradek_api.kafka_cluster.listeners import (
    CONTROLLER,
    CONTROLLER_TLS,
    REPLICATION,
    Listener,
)
from odradek_api.kafka_cluster.spec import KafkaClusterSpec

CONTROLLERS_FIXED = (
    "dedicated controllers cannot be added to a cluster or removed from it: create a new cluster "
    "and copy the topics with `odradek migrate`"
)
CONTROLLER_COUNT_FIXED = "the number of controllers cannot change"
RESERVED_NAMES = (REPLICATION, CONTROLLER, CONTROLLER_TLS)


def _all(holds: Callable[[Listener], bool]) -> Callable[[KafkaClusterSpec, object], bool]:
    return lambda new, _: all(map(holds, new.listener_list))


def _ports(spec: KafkaClusterSpec) -> list[int]:
    return [spec.metrics.port, *(one.port for one in spec.listener_list)]


# No CEL: the API server does not know the type of spec.listeners.
LISTENER_RULES = (
    Rule(
        "",
        f"must have 1 to {LISTENERS_MAX} listeners, one of them of type internal",
        "listeners",
        lambda new, _: (
            0 < len(new.listener_list) <= LISTENERS_MAX
            and any(one.type == "internal" for one in new.listener_list)
        ),
    ),
    Rule(
        "",
        "must not name a listener twice",
        "listeners",
        lambda new, _: len({one.name for one in new.listener_list}) == len(new.listener_list),
    ),
    Rule(
        "",
        f"the names {', '.join(RESERVED_NAMES)} are reserved for the brokers",
        "listeners",
        _all(lambda one: one.name not in RESERVED_NAMES),
    ),
    Rule(
        "",
        "the ports of the listeners and metrics.port must differ",
        "listeners",
        lambda new, _: len(set(_ports(new))) == len(_ports(new)),
    ),
    Rule(
        "",
        f"ports {CONTROLLER_PORT} and {CONTROLLER_TLS_PORT} are reserved for the controllers of "
        "engine apache: choose another port for the listener, or another metrics.port",
        "listeners",
        lambda new, _: (
            new.engine != "apache" or {CONTROLLER_PORT, CONTROLLER_TLS_PORT}.isdisjoint(_ports(new))
        ),
    ),
    Rule(
        "",
        f"port {REPLICATION_PORT} is reserved for the brokers of a cluster with TLS: choose "
        "another port for the listener, or another metrics.port",
        "listeners",
        lambda new, _: not new.secured or REPLICATION_PORT not in _ports(new),
    ),
    Rule(
        "",
        "authentication needs tls: true: a password, a token or a certificate is not sent over an "
        "unencrypted connection",
        "listeners",
        _all(lambda one: one.tls or one.authentication.type == "none"),
    ),
    Rule(
        "",
        "type passthrough needs tls: true and hostPattern: the proxy chooses the broker by the "
        "name that TLS sends",
        "listeners",
        _all(lambda one: one.type != "passthrough" or (one.tls and one.host_pattern is not None)),
    ),
    Rule(
        "",
        "hostPattern is for clients outside Kubernetes: type internal has none",
        "listeners",
        _all(lambda one: one.type != "internal" or one.host_pattern is None),
    ),
    Rule(
        "",
        "authentication of type oauth needs oauth.jwksUrl, and no other type has `oauth`",
        "listeners",
        _all(
            lambda one: (
                (one.authentication.type == "oauth") == (one.authentication.oauth is not None)
            )
        ),
    ),
    Rule(
        "",
        "with security strict every listener needs tls: true and authentication",
        "listeners",
        lambda new, _: (
            new.security != "strict"
            or all(one.tls and one.authentication.type != "none" for one in new.listener_list)
        ),
    ),
    Rule(
        "!has(self.certificates.issuerRef) || !has(self.certificates.secretName)",
        "certificates.issuerRef and certificates.secretName exclude each other",
        "certificates",
        lambda new, _: new.certificates.issuer_ref is None or new.certificates.secret_name is None,
    ),
    Rule(
        "self.certificates.renewBeforeDays < self.certificates.validityDays",
        "must be less than certificates.validityDays",
        "certificates.renewBeforeDays",
        lambda new, _: new.certificates.renew_before_days < new.certificates.validity_days,
    ),
    Rule(
        "self.certificates.caRenewBeforeDays < self.certificates.caValidityDays",
        "must be less than certificates.caValidityDays",
        "certificates.caRenewBeforeDays",
        lambda new, _: new.certificates.ca_renew_before_days < new.certificates.ca_validity_days,
    ),
)

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
    *LISTENER_RULES,
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
