"""The status of a KafkaCluster and of its Topics: conditions and numbers. Does no I/O.

Computed from desired state, observed state, plan and the previous status (a condition keeps the
time of its last transition). It is written before the plan is carried out, so that it reports what
is pending while it is pending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from odradek_api.base import Condition, instant
from odradek_api.kafka_cluster.status import (
    BrokerStatus,
    CertificateStatus,
    ControllerStatus,
    DiskStatus,
    KafkaClusterStatus,
    ListenerStatus,
    RestartStatus,
    RollingStatus,
)
from odradek_api.topic import TopicStatus
from odradek_operator.kafka.actions import (
    NAMES_MAX,
    Elect,
    Plan,
    Reason,
    Refuse,
    Restart,
    Wait,
    listed,
    named,
)
from odradek_operator.kafka.client_addresses import client_addresses
from odradek_operator.kafka.desired import DesiredCluster, DesiredTopic
from odradek_operator.kafka.disks import disk_pressure, disk_statuses
from odradek_operator.kafka.make_plan import controllers_view, roll_view
from odradek_operator.kafka.observed import (
    NO_LEADER,
    Observed,
    ObservedKafka,
    Partition,
    Phase,
)
from odradek_operator.kafka.replicas import shares_rack
from odradek_operator.kafka.restart_history import restart_history
from odradek_operator.kafka.roll import not_preferred
from odradek_protocol.ids import TopicPartition

UNAVAILABLE_MAX = 20  # partitions named in the status


def cluster_status(
    desired: DesiredCluster,
    observed: Observed,
    plan: Plan,
    before: KafkaClusterStatus | None = None,
    certificates: Sequence[CertificateStatus] = (),
) -> KafkaClusterStatus:
    kafka = observed.kafka
    disks = disk_statuses(desired, observed, before.disks if before else [], instant(observed.now))
    found = (
        _ready(desired, observed, disks),
        _progressing(plan),
        _degraded(observed, plan),
        _rack_aware(desired, observed),
        _preferred_leaders(observed),
        disk_pressure(disks, observed),
        *_deprecated(desired),
    )
    brokers = _brokers(desired, observed, disks)
    partitions = kafka.partitions if kafka else ()
    led = sum(p.leader == p.replicas[0] for p in partitions)
    return KafkaClusterStatus(
        observed_generation=desired.generation,
        conditions=conditions(found, before.conditions if before else [], desired.generation,
                              observed.now),
        cluster_id=kafka.cluster_id if kafka else desired.cluster_id,
        bootstrap_servers=desired.bootstrap,
        listeners=_listeners(desired, observed),
        certificates=list(certificates),
        brokers=brokers,
        controllers=_controllers(desired, observed),
        broker_count=len(brokers),
        ready_brokers=sum(b.ready for b in brokers),
        selector=f"odradek.dev/cluster={desired.name}"
        + (",odradek.dev/role=broker" if desired.controllers else ""),
        controller=kafka.controller if kafka else -1,
        formation=list(desired.formation),
        dynamic_config=sorted(observed.dynamic_config),
        rolling=_rolling(desired, observed, plan, before.rolling if before else None),
        restarts=_restarts(desired, observed, plan, before),
        disks=disks,
        topics=len(kafka.topics) if kafka else 0,
        partitions=len(partitions),
        preferred_leaders_percent=round(100 * led / len(partitions)) if partitions else 100,
    )  # fmt: skip


def _restarts(
    desired: DesiredCluster, observed: Observed, plan: Plan, before: KafkaClusterStatus | None
) -> list[RestartStatus]:
    if before is None:
        return restart_history((), desired, observed, plan, ())
    ready = [one.id for one in before.brokers if one.ready]
    ready += [one.id for one in before.controllers if one.ready]
    return restart_history(before.restarts, desired, observed, plan, ready)


def topic_statuses(
    topics: Sequence[DesiredTopic],
    observed: Observed,
    plan: Plan,
    owned: Mapping[str, str],
    before: Mapping[str, TopicStatus] | None = None,
    generations: Mapping[str, int] | None = None,
    cluster: str = "",
) -> dict[str, TopicStatus]:
    """Topic resource ("namespace/name") → status. There may be thousands of Topics."""
    partitions: dict[str, list[Partition]] = {}
    for partition in observed.kafka.partitions if observed.kafka else ():
        partitions.setdefault(partition.id.topic, []).append(partition)
    refused = {a.subject: a.reason for a in reversed(plan) if isinstance(a, Refuse)}
    rivals: dict[str, list[str]] = {}
    for topic in topics:
        if topic.owner in refused and refused[topic.owner].code == "NameConflict":
            rivals.setdefault(topic.name, []).append(topic.owner)
    made = {}
    for topic in topics:
        own = partitions.get(topic.name, [])
        old = (before or {}).get(topic.owner)
        generation = (generations or {}).get(topic.owner, 0)
        ready = _topic_ready(topic, cluster, observed.kafka, own, refused.get(topic.owner))
        if topic.owner not in refused and (others := rivals.get(topic.name)):
            message = f"{ready[2]}; {listed(others)} {_is(others)} refused for declaring it too"
            ready = ready[0], ready[1], Reason("NameConflict", message)
        found = observed.kafka.topics.get(topic.name) if observed.kafka else None
        made[topic.owner] = TopicStatus(
            observed_generation=generation,
            conditions=conditions([ready], old.conditions if old else [], generation,
                                  observed.now),
            topic_name=topic.name,
            topic_id=found.topic_id if found else "",
            partitions=len(own),
            replication_factor=min((len(p.target) for p in own), default=0),
            managed=owned.get(topic.name) == topic.owner,
            dynamic_config=sorted(topic.config),
        )  # fmt: skip
    return made


def _is(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


Found = tuple[str, str, Reason]  # type, status, reason


def conditions(
    found: Sequence[Found], before: Sequence[Condition], generation: int, now: float
) -> list[Condition]:
    """The conditions, each with the time of its last transition."""
    earlier = {c.type: c for c in before}
    made = []
    for kind, status, reason in found:
        old = earlier.get(kind)
        changed = old is None or old.status != status
        since = instant(now) if changed or old is None else old.last_transition_time
        made.append(
            Condition(
                type=kind,
                status=status,
                reason=reason.code,
                message=reason.message,
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return made


# -- the conditions --------------------------------------------------------------------------------


def _ready(desired: DesiredCluster, observed: Observed, disks: Sequence[DiskStatus]) -> Found:
    ready = {b for b, found in observed.brokers.items() if found.phase is Phase.READY}
    missing = sorted(desired.brokers.keys() - ready)
    if missing:
        message = (
            f"{len(desired.brokers) - len(missing)} of {len(desired.brokers)} brokers are ready; "
        )
        message += f"not ready: {listed(missing)}"
        known = {b: _why_not_ready(observed, disks, b) for b in missing[:NAMES_MAX]}
        why = [f"broker {b}: {text}" for b, text in known.items() if text]
        return "Ready", "False", Reason("BrokersNotReady", "; ".join([message, *why]))
    controllers = {c for c, seen in observed.controllers.items() if seen.phase is Phase.READY}
    if away := sorted(desired.controllers.keys() - controllers):
        message = f"{named(away)} of {len(desired.controllers)} {'are' if len(away) > 1 else 'is'}"
        return "Ready", "False", Reason("ControllersNotReady", f"{message} not ready")
    kafka = observed.kafka
    if kafka is None:
        return "Ready", "False", Reason("NoAnswer", observed.unreachable or "no broker answers")
    if kafka.controller < 0:
        return "Ready", "False", Reason("NoController", "the cluster has no active controller")
    offline = [p.id for p in kafka.partitions if p.leader == NO_LEADER]
    if offline:
        message = f"{len(offline)} partitions have no leader: {listed(offline)}"
        return "Ready", "False", Reason("OfflinePartitions", message)
    return "Ready", "True", Reason("AllBrokersReady", f"{len(desired.brokers)} brokers are ready")


def _progressing(plan: Plan) -> Found:
    doing = [action for action in plan if not isinstance(action, Refuse)]
    if not doing:
        return "Progressing", "False", Reason("AsDesired", "the cluster matches its spec")
    if doing[0].reason.code == "Paused":
        return "Progressing", "False", doing[0].reason
    return "Progressing", "True", doing[0].reason


def _degraded(observed: Observed, plan: Plan) -> Found:
    for nodes in (observed.controllers, observed.brokers):
        crashed = sorted(b for b, found in nodes.items() if found.phase is Phase.CRASHED)
        if crashed:
            detail = nodes[crashed[0]].detail
            message = f"{named(crashed)} cannot run" + (f": {detail}" if detail else "")
            return "Degraded", "True", Reason("BrokerCrashed", message)
    refused = [a.reason for a in plan if isinstance(a, Refuse) and not a.subject]
    if refused:
        return "Degraded", "True", refused[0]
    partitions = observed.kafka.partitions if observed.kafka else ()
    behind = [p.id for p in partitions if not set(p.settled) <= p.isr]
    if behind:
        message = f"{len(behind)} partitions are under-replicated: {listed(behind)}"
        return "Degraded", "True", Reason("UnderReplicated", message)
    return "Degraded", "False", Reason("AllReplicasInSync", "all replicas are in sync")


def _rack_aware(desired: DesiredCluster, observed: Observed) -> Found:
    kafka = observed.kafka
    if kafka is None:
        return "RackAware", "Unknown", Reason("NoAnswer", "no broker answers")
    moved = [b for b in observed.brokers.values() if b.node_rack not in ("", b.rack)]
    if moved:
        texts = [f"broker {b.id} of rack {b.rack} is on a node of {b.node_rack}" for b in moved]
        message = f"nodes were relabelled: {listed(texts)}"
        return "RackAware", "False", Reason("NodeInOtherRack", message)
    racks = {b: broker.rack for b, broker in desired.brokers.items()}
    wrong = sorted(b for b, rack in racks.items() if kafka.registered.get(b, rack) != rack)
    if wrong:
        message = f"{listed(wrong, 'broker')} registered with another rack than the desired one"
        return "RackAware", "False", Reason("RackMismatch", message)
    shared = [p.id for p in kafka.partitions if shares_rack(p.target, racks)]
    if shared:
        message = f"{len(shared)} partitions have replicas that share a rack: {listed(shared)}"
        return "RackAware", "False", Reason("RacksShared", message)
    if len(set(racks.values()) - {""}) < 2:
        return "RackAware", "False", Reason("OneRack", "all brokers are in one rack")
    return "RackAware", "True", Reason("RacksApart", "no two replicas of a partition share a rack")


def _preferred_leaders(observed: Observed) -> Found:
    if observed.kafka is None:
        return "PreferredLeaders", "Unknown", Reason("NoAnswer", "no broker answers")
    partitions = observed.kafka.partitions
    away = [p.id for p in partitions if p.leader != p.replicas[0]]
    if not away:
        message = "all partitions are led by their preferred replica"
        return "PreferredLeaders", "True", Reason("AllPreferred", message)
    ready = frozenset(b for b, f in observed.brokers.items() if f.phase is Phase.READY)
    could = len(not_preferred(partitions, ready))
    message = f"{len(away)} of {len(partitions)} partitions are not led by their preferred replica "
    message += f"({could} could be now): {listed(away)}"
    return "PreferredLeaders", "False", Reason("NotPreferred", message)


def _deprecated(desired: DesiredCluster) -> list[Found]:
    found = desired.spec.deprecated
    return [("Deprecated", "True", Reason("DeprecatedListeners", found))] if found else []


def _topic_ready(
    topic: DesiredTopic,
    cluster: str,
    kafka: ObservedKafka | None,
    own: list[Partition],
    refused: Reason | None,
) -> Found:
    if refused is not None:
        return "Ready", "False", refused
    if kafka is None:
        return "Ready", "Unknown", Reason("NoAnswer", f"KafkaCluster {cluster} does not answer")
    if topic.name not in kafka.topics:
        pending = f"Topic {topic.name} is pending: KafkaCluster {cluster} has not created it yet"
        return "Ready", "False", Reason("TopicMissing", pending)
    offline = [p.id for p in own if p.leader == NO_LEADER]
    if offline:
        message = f"{len(offline)} partitions have no leader: {listed(offline)}"
        return "Ready", "False", Reason("OfflinePartitions", message)
    if moving := [p.id for p in own if p.moving]:
        return "Ready", "True", Reason("Moving", f"replicas of {listed(moving)} are being moved")
    return "Ready", "True", Reason("AsDesired", f"Topic {topic.name} matches its spec")


# -- brokers and the roll --------------------------------------------------------------------------


def _listeners(desired: DesiredCluster, observed: Observed) -> list[ListenerStatus]:
    """In the order of the spec; the listener that only brokers use is not among them."""
    by_broker = client_addresses(desired, observed)
    return [
        ListenerStatus(
            name=one.name,
            bootstrap_servers=",".join(a[one.kafka_name] for a in by_broker if one.kafka_name in a),
            protocol=one.protocol,
            authentication=one.authentication.type,
        )
        for one in desired.spec.listener_list
    ]


def _brokers(
    desired: DesiredCluster, observed: Observed, disks: Sequence[DiskStatus]
) -> list[BrokerStatus]:
    leaders: Counter[int] = Counter()
    preferred: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for partition in observed.kafka.partitions if observed.kafka else ():
        leaders[partition.leader] += 1
        preferred[partition.replicas[0]] += 1
        behind.update(r for r in partition.settled if r not in partition.isr)
    pending = {b: r.pending for b, r in roll_view(desired, observed).brokers.items()}
    made = []
    for broker in sorted({*desired.brokers, *observed.brokers}):
        found, wanted = observed.brokers.get(broker), desired.brokers.get(broker)
        reason = pending.get(broker)
        made.append(
            BrokerStatus(
                id=broker,
                rack=wanted.rack if wanted else desired.leaving.get(broker, ""),
                ready=found is not None and found.phase is Phase.READY,
                leaders=leaders[broker],
                preferred_leaders=preferred[broker],
                under_replicated=behind[broker],
                pending="leaving" if wanted is None else (reason.message if reason else ""),
                not_ready=_why_not_ready(observed, disks, broker),
            )
        )
    return made


def _why_not_ready(observed: Observed, disks: Sequence[DiskStatus], broker: int) -> str:
    found = observed.brokers.get(broker)
    if found is None or found.phase is Phase.READY:
        return ""
    if not found.detail and any(disk.broker == broker for disk in disks):
        return "see condition DiskPressure"
    return found.detail


def _controllers(desired: DesiredCluster, observed: Observed) -> list[ControllerStatus]:
    if not desired.controllers:
        return []
    pending = {c: r.pending for c, r in controllers_view(desired, observed).brokers.items()}
    active = observed.kafka.controller if observed.kafka else -1
    made = []
    for node, wanted in sorted(desired.controllers.items()):
        found, reason = observed.controllers.get(node), pending.get(node)
        made.append(
            ControllerStatus(
                id=node,
                rack=wanted.rack,
                ready=found is not None and found.phase is Phase.READY,
                active=node == active,
                pending=reason.message if reason else "",
            )
        )
    return made


def _without_leader(observed: Observed) -> tuple[TopicPartition, ...]:
    partitions = observed.kafka.partitions if observed.kafka else ()
    return tuple(p.id for p in partitions if p.leader == NO_LEADER)


def _rolling(
    desired: DesiredCluster, observed: Observed, plan: Plan, before: RollingStatus | None
) -> RollingStatus | None:
    """Set only while brokers have to be restarted, or a restarted one is not ready yet."""
    remaining = [
        *controllers_view(desired, observed).pending,
        *roll_view(desired, observed).pending,
    ]
    steps = [a for a in plan if isinstance(a, Restart | Elect | Wait)]
    if not steps or not (remaining or before):
        return None
    step = steps[0]
    brokers = () if isinstance(step, Elect) else step.brokers
    partition = str(step.partition) if isinstance(step, Wait) and step.partition else ""
    state = {Restart: "Restarting", Elect: "Electing", Wait: "Waiting"}[type(step)]
    same = before is not None and (before.state, before.brokers, before.partition) == (
        state, list(brokers), partition,
    )  # fmt: skip
    away = step.unavailable if isinstance(step, Restart) else _without_leader(observed)
    return RollingStatus(
        state=state,
        brokers=list(brokers),
        partition=partition,
        reason=step.reason.message,
        since=before.since if same and before else instant(observed.now),
        unavailable=[str(p) for p in away[:UNAVAILABLE_MAX]],
        remaining=remaining,
    )
