"""One pass over one cluster: look, plan, say, act. Level-based: it does not care why it runs.

    seen = look(resource, topics, platform, record, admin)     # changes nothing; `odradek plan`
    failed, awaited = act(seen, platform, admin)               # after the status was written

`Record` is what earlier passes wrote down about topics and settings; `remember` says what has to
be written down before acting.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek_api.base import Resource
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.admin.kafka_admin import AdminError, KafkaAdmin, NotYetError
from odradek_operator.kafka.actions import AlterBrokerConfig, Plan
from odradek_operator.kafka.desired import DesiredCluster, DesiredTopic, build
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
class Seen:
    desired: DesiredCluster
    observed: Observed
    topics: Sequence[DesiredTopic]
    plan: Plan
    record: Record  # to be written down before acting


def look(
    resource: Resource[KafkaClusterSpec],
    topics: Sequence[DesiredTopic],
    racks: Sequence[str],
    platform: Platform,
    record: Record,
    admin: KafkaAdmin,
) -> Seen:
    desired = build(resource, racks, platform.known(), platform)
    seen = platform.observe()
    brokers = {b: found for b, found in seen.items() if not is_controller(b)}
    kafka, unreachable = None, "no broker runs"
    if any(b.phase is Phase.READY for b in brokers.values()):
        kafka, unreachable = _ask(desired, topics, record, admin)
    observed = Observed(
        now=time.time(),
        brokers=brokers,
        controllers={c: found for c, found in seen.items() if is_controller(c)},
        kafka=kafka,
        unreachable=unreachable,
        dynamic_config=record.dynamic_config,
        managed_topics=record.managed_topics,
        managed_settings=record.managed_settings,
    )
    plan = make_plan(desired, observed, topics)
    return Seen(desired, observed, topics, plan, _remember(desired, observed, topics, plan))


def act(seen: Seen, platform: Platform, admin: KafkaAdmin) -> tuple[list[str], list[str]]:
    """Carries the plan out, in order; what failed and what is awaited, in words.

    Either ends it: the next pass tries again.
    """
    failures: list[str] = []
    for action in seen.plan:
        try:
            refused = carry_out(action, seen.desired, platform, admin)
        except NotYetError as awaited:
            return failures, [f"{what(action)}: {awaited}"]
        except AdminError as error:
            return [*failures, f"{what(action)}: {error}"], []
        failures += [f"{what(action)}: {name}: {why}" for name, why in refused.items()]
    return failures, []


def _ask(
    desired: DesiredCluster, topics: Sequence[DesiredTopic], record: Record, admin: KafkaAdmin
) -> tuple[Kafka | None, str]:
    settings = {n for b in desired.brokers.values() for n in b.properties} | record.dynamic_config
    of_topics = {n for t in topics for n in t.config}
    of_topics |= {n for names in record.managed_settings.values() for n in names}
    try:
        return admin.observe(settings, of_topics), ""
    except AdminError as error:
        return None, str(error)


def _remember(
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
    forgotten = {n for n, t in by_name.items() if t.delete and (t.retain or n not in kafka.topics)}
    kept = {n: owner for n, owner in owned.items() if n not in forgotten}
    return Record(
        dynamic_config=frozenset(
            n for n in observed.dynamic_config | altered if n in wanted or n in still
        ),
        managed_topics=kept,
        # Until a setting is gone from the topic, it is remembered as ours to take away.
        managed_settings={
            n: frozenset(by_name[n].config)
            | (before.managed_settings.get(n, frozenset()) & kafka.topics[n].config.keys()
               if n in kafka.topics else frozenset())
            for n in kept
        },
    )  # fmt: skip
