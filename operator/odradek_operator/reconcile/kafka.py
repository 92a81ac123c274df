"""One pass over one cluster: observe, plan, report, act. Level-based: the trigger does not matter.

    assessed = assess(resource, topics, racks, platform, record, admin)    # changes nothing
    failed, pending = act(assessed, platform, admin)                       # after the report

`odradek plan` calls `assess` only. A `PersistedRecord` has the topics and settings that earlier
passes have set; `Assessment.record` has to be persisted before acting.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek_api.base import Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.admin.kafka_admin import AdminError, KafkaAdmin, NotYetError
from odradek_operator.admin.loads import read_loads
from odradek_operator.kafka.actions import AlterBrokerConfig, Plan
from odradek_operator.kafka.desired import DesiredCluster, DesiredTopic, build, lay_out
from odradek_operator.kafka.explain import what
from odradek_operator.kafka.make_plan import Others, make_plan
from odradek_operator.kafka.observed import Loads, Observed, ObservedKafka, Phase
from odradek_operator.kafka.placement import is_controller
from odradek_operator.kafka.rebalance_triggers import Members
from odradek_operator.kafka.topics import claims
from odradek_operator.reconcile.carry_out import carry_out
from odradek_operator.reconcile.platform import Platform
from odradek_operator.reconcile.rebalances import RebalanceKeeper, View


@dataclass(frozen=True)
class PersistedRecord:
    dynamic_config: frozenset[str] = frozenset()
    managed_topics: Mapping[str, str] = field(default_factory=dict)
    managed_settings: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Assessment:
    """The desired state, the observed state, and the plan for the difference."""

    desired: DesiredCluster
    observed: Observed
    topics: Sequence[DesiredTopic]
    plan: Plan
    record: PersistedRecord  # to be persisted before acting


def assess(
    resource: Resource[KafkaClusterSpec],
    topics: Sequence[DesiredTopic],
    racks: Sequence[str],
    platform: Platform,
    record: PersistedRecord,
    admin: KafkaAdmin,
    rebalances: RebalanceKeeper | None = None,
) -> Assessment:
    known = platform.known()
    layout = lay_out(resource, racks, known)
    endpoints = platform.endpoints(layout)
    desired = build(resource, layout, known, endpoints)
    nodes = platform.observe()
    brokers = {b: found for b, found in nodes.items() if not is_controller(b)}
    kafka, unreachable = None, "no broker is running"
    if any(b.phase is Phase.READY for b in brokers.values()):
        kafka, unreachable = _describe(desired, topics, record, admin, rebalances)
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
    if rebalances is None:
        plan = make_plan(desired, observed, topics)
    else:
        executions = rebalances.advance(_view(desired, observed, platform, admin))
        others = Others(bool(rebalances.assessed), rebalances.drained_by, rebalances.racks_by)
        plan = make_plan(desired, observed, topics, executions, others)
    return Assessment(desired, observed, topics, plan, _record(desired, observed, topics, plan))


def _view(
    desired: DesiredCluster, observed: Observed, platform: Platform, admin: KafkaAdmin
) -> View | None:
    if observed.kafka is None:
        return None

    def loads(window: str) -> Loads:
        ready = {b for b, found in observed.brokers.items() if found.phase is Phase.READY}
        at = {b: address for b, address in platform.metrics().items() if b in ready}
        return read_loads(at, window)

    members = Members(frozenset(desired.leaving), frozenset(desired.brokers))
    return View(observed.kafka, admin, observed.now, members, loads)


def act(assessed: Assessment, platform: Platform, admin: KafkaAdmin) -> tuple[list[str], list[str]]:
    """Carries out the plan in order; returns errors and pending conditions, in sentences.

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
    desired: DesiredCluster,
    topics: Sequence[DesiredTopic],
    record: PersistedRecord,
    admin: KafkaAdmin,
    rebalances: RebalanceKeeper | None,
) -> tuple[ObservedKafka | None, str]:
    settings = {n for b in desired.brokers.values() for n in b.properties} | record.dynamic_config
    of_topics = {n for t in topics for n in t.config}
    of_topics |= {n for names in record.managed_settings.values() for n in names}
    if rebalances is not None:
        settings |= rebalances.settings
        of_topics |= rebalances.topic_settings
    try:
        return admin.observe(settings, of_topics), ""
    except AdminError as error:
        return None, str(error)


def _record(
    desired: DesiredCluster, observed: Observed, topics: Sequence[DesiredTopic], plan: Plan
) -> PersistedRecord:
    kafka = observed.kafka
    before = PersistedRecord(
        observed.dynamic_config, observed.managed_topics, observed.managed_settings
    )
    if kafka is None:
        return before
    altered = {n for a in plan if isinstance(a, AlterBrokerConfig) for n in a.changes}
    wanted = {n for b in desired.brokers.values() for n in b.properties}
    still = {n for s in kafka.settings.values() for n, entry in s.items() if entry.dynamic}
    owned = claims(topics, observed)
    by_name = {t.name: t for t in topics if owned.get(t.name) == t.owner}
    released = {n for n, t in by_name.items() if t.delete and (t.retain or n not in kafka.topics)}
    kept = {n: owner for n, owner in owned.items() if n not in released}
    return PersistedRecord(
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
