"""One pass over one cluster: observe, plan, report, act. Level-based: the trigger does not matter.

    assessed = assess(resource, topics, racks, platform, record, admin)    # changes nothing
    failed, pending = act(assessed, platform, admin)                       # after the report

`odradek plan` calls `assess` only. A `Record` is what earlier passes persisted about topics and
settings; `Assessment.record` has to be persisted before acting.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek_api.base import Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.admin.kafka_admin import AdminError, KafkaAdmin, NotYetError
from odradek_operator.kafka.actions import AlterBrokerConfig, Plan
from odradek_operator.kafka.desired import DesiredCluster, DesiredTopic, build, lay_out
from odradek_operator.kafka.explain import what
from odradek_operator.kafka.make_plan import make_plan
from odradek_operator.kafka.observed import Kafka, Observed, Phase
from odradek_operator.kafka.placement import is_controller
from odradek_operator.kafka.topics import claims
from odradek_operator.reconcile.carry_out import carry_out
from odradek_operator.reconcile.platform import Platform


@dataclass(frozen=True)
class Record:
    dynamic_config: frozenset[str] = frozenset()
    managed_topics: Mapping[str, str] = field(default_factory=dict)
    managed_settings: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Assessment:
    """What is desired, what is observed, and what to do about the difference."""

    desired: DesiredCluster
    observed: Observed
    topics: Sequence[DesiredTopic]
    plan: Plan
    record: Record  # to be persisted before acting


def assess(
    resource: Resource[KafkaClusterSpec],
    topics: Sequence[DesiredTopic],
    racks: Sequence[str],
    platform: Platform,
    record: Record,
    admin: KafkaAdmin,
) -> Assessment:
    known = platform.known()
    layout = lay_out(resource, racks, known)
    endpoints = platform.endpoints(layout.nodes, layout.spec)
    desired = build(resource, layout, known, endpoints)
    nodes = platform.observe()
    brokers = {b: found for b, found in nodes.items() if not is_controller(b)}
    kafka, unreachable = None, "no broker is running"
    if any(b.phase is Phase.READY for b in brokers.values()):
        kafka, unreachable = _describe(desired, topics, record, admin)
    observed = Observed(
        now=time.time(),
        brokers=brokers,
        controllers={c: found for c, found in nodes.items() if is_controller(c)},
        kafka=kafka,
        unreachable=unreachable,
        dynamic_config=record.dynamic_config,
        managed_topics=record.managed_topics,
        managed_settings=record.managed_settings,
    )
    plan = make_plan(desired, observed, topics)
    return Assessment(desired, observed, topics, plan, _record(desired, observed, topics, plan))


def act(assessed: Assessment, platform: Platform, admin: KafkaAdmin) -> tuple[list[str], list[str]]:
    """Carries out the plan in order; returns what failed and what is pending, in sentences.

    Either one ends the pass: the next pass plans again.
    """
    failures: list[str] = []
    for action in assessed.plan:
        try:
            refused = carry_out(action, assessed.desired, platform, admin)
        except NotYetError as pending:
            return failures, [f"{what(action)}: {pending}"]
        except AdminError as error:
            return [*failures, f"{what(action)}: {error}"], []
        failures += [f"{what(action)}: {name}: {why}" for name, why in refused.items()]
    return failures, []


def _describe(
    desired: DesiredCluster, topics: Sequence[DesiredTopic], record: Record, admin: KafkaAdmin
) -> tuple[Kafka | None, str]:
    settings = {n for b in desired.brokers.values() for n in b.properties} | record.dynamic_config
    of_topics = {n for t in topics for n in t.config}
    of_topics |= {n for names in record.managed_settings.values() for n in names}
    try:
        return admin.observe(settings, of_topics), ""
    except AdminError as error:
        return None, str(error)


def _record(
    desired: DesiredCluster, observed: Observed, topics: Sequence[DesiredTopic], plan: Plan
) -> Record:
    kafka = observed.kafka
    before = Record(observed.dynamic_config, observed.managed_topics, observed.managed_settings)
    if kafka is None:
        return before
    altered = {n for a in plan if isinstance(a, AlterBrokerConfig) for n in a.changes}
    wanted = {n for b in desired.brokers.values() for n in b.properties}
    still = {n for s in kafka.settings.values() for n, entry in s.items() if entry.dynamic}
    owned = claims(topics, observed)
    by_name = {t.name: t for t in topics if owned.get(t.name) == t.owner}
    released = {n for n, t in by_name.items() if t.delete and (t.retain or n not in kafka.topics)}
    kept = {n: owner for n, owner in owned.items() if n not in released}
    return Record(
        dynamic_config=frozenset(
            n for n in observed.dynamic_config | altered if n in wanted or n in still
        ),
        managed_topics=kept,
        # A setting stays recorded until the topic no longer has it, so that it will be removed.
        managed_settings={
            n: frozenset(by_name[n].config)
            | (before.managed_settings.get(n, frozenset()) & kafka.topics[n].config.keys()
               if n in kafka.topics else frozenset())
            for n in kept
        },
    )  # fmt: skip
