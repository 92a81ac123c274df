"""Rules between the fields of a KafkaRebalance's spec, for the API server (CEL) and parse.py."""

from __future__ import annotations

from odradek_api.base import Resource, Rule, quantity_bytes
from odradek_api.cron import ScheduleError, parse_schedule
from odradek_api.kafka_rebalance.spec import KafkaRebalanceSpec

NAMED = ("add-brokers", "remove-brokers")


def rebalance_cluster(rebalance: Resource[KafkaRebalanceSpec]) -> str:
    """ "namespace/name" of the KafkaCluster."""
    return rebalance.spec.cluster.key(rebalance.namespace)


REBALANCE_RULES = (
    Rule(
        "self.cluster == oldSelf.cluster",
        "a rebalance cannot change its cluster: create a new KafkaRebalance",
        "cluster",
        lambda new, old: old is None or new.cluster == old.cluster,
    ),
    Rule(
        "!has(self.cluster.__namespace__)",
        "a KafkaRebalance is in the namespace of its KafkaCluster",
        "cluster.namespace",
        lambda new, _: new.cluster.namespace is None,
    ),
    Rule(
        "(self.mode in ['add-brokers', 'remove-brokers']) == (size(self.brokers) > 0)",
        "the modes add-brokers and remove-brokers need it, and only they use it",
        "brokers",
        lambda new, _: (new.mode in NAMED) == bool(new.brokers),
    ),
    Rule(
        "(self.mode == 'remove-disks') == (size(self.disks) > 0)",
        "the mode remove-disks needs it, and only it uses it",
        "disks",
        lambda new, _: (new.mode == "remove-disks") == bool(new.disks),
    ),
    Rule(
        "!self.throttle.matches('^0+(\\\\.0+)?[a-zA-Z]*$')",
        "has to be more than 0: moves would never end",
        "throttle",
        lambda new, _: quantity_bytes(new.throttle) > 0,
    ),
)


def refusals(spec: KafkaRebalanceSpec) -> list[tuple[str, str]]:
    """Rules that a schema cannot express: field and message."""
    if spec.schedule is None:
        return []
    try:
        parse_schedule(spec.schedule)
    except ScheduleError as error:
        return [("spec.schedule", str(error))]
    return []
