"""desired + observed → the plan: everything that can be done now, in order, with reasons.

    make_plan(desired, observed, topics) -> (StartBrokers(…), Restart(…), CreateTopics(…), …)

Does no I/O. At most one action of a plan is disruptive (a restart); the next one is planned by the
next pass, from a new observation. If no broker answers, brokers are started and nothing else is
done, because nothing is known about the partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from odradek_operator.kafka.actions import (
    Elect,
    Plan,
    Reason,
    Refuse,
    Restart,
    StartBrokers,
    Wait,
    listed,
    named,
)
from odradek_operator.kafka.desired import DesiredBroker, DesiredCluster, DesiredTopic
from odradek_operator.kafka.differences import alter_config, restart_reason
from odradek_operator.kafka.moves import drain, level, repair_racks
from odradek_operator.kafka.observed import (
    BrokerSetting,
    Observed,
    ObservedBroker,
    ObservedKafka,
    Phase,
)
from odradek_operator.kafka.rebalancing import Execution, moves_under_way, plan_execution
from odradek_operator.kafka.roll import (
    CRASHED,
    Decision,
    NothingToRestart,
    RollBroker,
    RollView,
    decide_roll,
)
from odradek_operator.kafka.topics import plan_topics


@dataclass(frozen=True)
class Others:
    """Steps that KafkaRebalances replace; else both would move the same replicas to and fro."""

    balance: bool = False  # there is one: spec.rebalance auto does not even out numbers of replicas
    drained_by: str = ""  # "namespace/name" of the one that empties brokers that leave
    racks_by: str = ""  # of the one that repairs racks


def make_plan(
    desired: DesiredCluster,
    observed: Observed,
    topics: Sequence[DesiredTopic] = (),
    executions: Sequence[Execution] = (),
    others: Others = Others(),  # noqa: B008 (frozen)
) -> Plan:
    """`executions`: of approved proposals, whose moves and a roll exclude each other."""
    if desired.spec.pause:
        return (Wait(Reason("Paused", "spec.pause is true: the operator changes nothing")),)
    plan = _plan(desired, observed, topics, executions, others)
    if desired.refused:
        plan = (*plan, Refuse(Reason("Refused", f"spec.controllers: {desired.refused}")))
    return plan


def _plan(
    desired: DesiredCluster,
    observed: Observed,
    topics: Sequence[DesiredTopic],
    executions: Sequence[Execution],
    others: Others,
) -> Plan:
    starts = _start(desired, observed)
    decision = _after_moves(_next_step(desired, observed), observed, executions)
    decision = _when_voters_are_known(decision, desired, observed)
    roll: Plan = () if isinstance(decision, NothingToRestart) else (decision,)
    kafka = observed.kafka
    if kafka is None:
        if starts:
            return (*starts, *_topics_later(topics))
        if isinstance(decision, Restart) or any(
            b.phase is not Phase.READY for b in observed.brokers.values()
        ):
            return roll
        return (Wait(Reason("NoAnswer", observed.unreachable or "no broker answers")),)
    altered = alter_config(desired, observed)
    brokers = {b: broker.rack for b, broker in desired.brokers.items()}
    return (
        *starts,
        *((altered,) if altered else ()),
        *roll,
        *(
            Wait(Reason("LaterStep", f"afterwards: {step}"))
            for step in (*desired.links.later, *desired.links.clients)
        ),
        *drain(
            desired, observed, kafka, others.drained_by, restarting=isinstance(decision, Restart)
        ),
        *(() if executions else _rebalance(desired, kafka, decision, others)),
        *_executions(desired, kafka, decision, executions),
        *plan_topics(topics, observed, brokers),
    )


def _when_voters_are_known(
    decision: Decision, desired: DesiredCluster, observed: Observed
) -> Decision:
    """A node that changes its listener needs the addresses of all voters there."""
    kafka, links = observed.kafka, desired.links
    if not links.step or not isinstance(decision, Restart) or kafka is None:
        return decision
    unknown = [n for n in kafka.voters if links.quorum not in kafka.voter_listeners.get(n, ())]
    if not unknown or _of_crashed(decision):
        return decision
    why = f"the metadata quorum does not know yet where {named(unknown)} can be reached through "
    return Wait(Reason("VoterAddress", f"{why}listener {links.quorum}"), tuple(unknown))


def _next_step(desired: DesiredCluster, observed: Observed) -> Decision:
    """Dedicated controllers first, and like brokers only from a settled cluster."""
    brokers = decide_roll(roll_view(desired, observed))
    if not desired.controllers:
        return brokers
    controllers = decide_roll(controllers_view(desired, observed))
    if isinstance(controllers, NothingToRestart) or _of_crashed(brokers):
        return brokers
    if isinstance(controllers, Restart) and not _of_crashed(controllers):
        return brokers if isinstance(brokers, Wait | Elect) else controllers
    return controllers


def _after_moves(
    decision: Decision, observed: Observed, executions: Sequence[Execution]
) -> Decision:
    """A restart waits for replicas that are being copied; no further move begins meanwhile."""
    if not isinstance(decision, Restart) or _of_crashed(decision) or observed.kafka is None:
        return decision
    owner, moving = moves_under_way(executions, observed.kafka)
    if not moving:
        return decision
    why = f"{named(decision.brokers)} will restart when the moves of KafkaRebalance {owner} that "
    why += f"have begun are done: {listed(moving)}"
    return Wait(Reason("MovesUnderWay", why), decision.brokers)


def _executions(
    desired: DesiredCluster,
    kafka: ObservedKafka,
    decision: Decision,
    executions: Sequence[Execution],
) -> Plan:
    plans = [plan_execution(one, kafka, _hold(desired, decision, one)) for one in executions]
    electing = isinstance(decision, Elect)  # it elects all partitions that are not led as preferred
    return tuple(a for plan in plans for a in plan if not (electing and isinstance(a, Elect)))


def _hold(desired: DesiredCluster, decision: Decision, execution: Execution) -> str:
    """Why no further move of this execution may begin; a broker that it replaces is no reason."""
    if isinstance(decision, Restart | Wait):
        about = set(decision.brokers)
        if not about or not about <= execution.without:
            return f"the brokers are rolled: {decision.reason.message}"
    if others := sorted(desired.leaving.keys() - execution.removed):
        return f"{listed(others, 'broker')} is removed"
    return ""


def _of_crashed(decision: Decision) -> bool:
    return isinstance(decision, Restart) and decision.reason.code == CRASHED


def controllers_view(desired: DesiredCluster, observed: Observed) -> RollView:
    """Controllers are not asked for their settings; a broker's answer says which are dynamic."""
    kafka = observed.kafka or ObservedKafka()
    settings = next(iter(kafka.settings.values()), {})
    return RollView(
        now=observed.now,
        brokers=_to_roll(
            observed.controllers,
            desired.controllers,
            dict.fromkeys(observed.controllers, settings),
            desired.links.step,
        ),
        controller=kafka.controller,
        voters=kafka.voters,
        lagging_voters=kafka.lagging_voters,
        min_ready_seconds=desired.spec.rolling.min_ready_seconds,
    )


def roll_view(desired: DesiredCluster, observed: Observed) -> RollView:
    """The input of a rolling restart; leaving brokers are not restarted."""
    kafka = observed.kafka or ObservedKafka()
    rolling = desired.spec.rolling
    return RollView(
        now=observed.now,
        brokers=_to_roll(
            observed.brokers, desired.brokers, kafka.settings, desired.links.step, kafka.live
        ),
        partitions=kafka.partitions,
        controller=kafka.controller,
        voters=kafka.voters,
        lagging_voters=kafka.lagging_voters,
        max_unavailable=rolling.max_unavailable,
        min_ready_seconds=rolling.min_ready_seconds,
        preferred_leaders=rolling.preferred_leaders,
        dedicated_controllers=bool(desired.controllers),
    )


def _to_roll(
    seen: Mapping[int, ObservedBroker],
    wanted: Mapping[int, DesiredBroker],
    settings: Mapping[int, Mapping[str, BrokerSetting]],
    step: str,
    live: Collection[int] | None = None,
) -> dict[int, RollBroker]:
    nodes = {}
    for node, found in seen.items():
        should = wanted.get(node)
        if should is None and found.phase is not Phase.READY:
            continue  # it is leaving
        pending = restart_reason(should, found, settings.get(node, {})) if should else None
        if pending is not None and pending.code == "ConfigChanged" and step:
            pending = Reason("ListenersChanged", step)
        if found.phase is Phase.STOPPED:
            pending = None  # it will be started with the desired settings
        phase = found.phase
        if phase is Phase.STARTING and found.wants_restart and live and node not in live:
            # Fenced: it serves no client, perhaps because it waits for the space that a restart
            # makes available.
            phase = Phase.CRASHED
        nodes[node] = RollBroker(node, found.rack, phase, pending, found.since)
    return nodes


def _start(desired: DesiredCluster, observed: Observed) -> Plan:
    """Starts nodes that should run and do not, also leaving brokers that still hold replicas."""
    holding = {r for p in (observed.kafka.partitions if observed.kafka else ()) for r in p.replicas}
    wanted = {*desired.brokers, *(desired.leaving.keys() & holding)}
    return (
        *_start_missing(desired.controllers.keys(), observed.controllers),
        *_start_missing(wanted, observed.brokers),
    )


def _start_missing(wanted: Collection[int], seen: Mapping[int, ObservedBroker]) -> Plan:
    new = sorted(b for b in wanted if b not in seen)
    stopped = sorted(b for b in wanted if b in seen and seen[b].phase is Phase.STOPPED)
    plan: Plan = ()
    if new:
        why = f"{named(new)} {'do' if len(new) > 1 else 'does'} not exist yet"
        plan = (StartBrokers(tuple(new), Reason("BrokerMissing", why)),)
    if stopped:
        why = f"{named(stopped)} {'are' if len(stopped) > 1 else 'is'} not running"
        plan = (*plan, StartBrokers(tuple(stopped), Reason("BrokerStopped", why)))
    return plan


def _topics_later(topics: Sequence[DesiredTopic]) -> Plan:
    names = [t.name for t in topics if not t.delete]
    if not names:
        return ()
    return (
        Wait(
            Reason(
                "TopicsLater", f"{listed(names, 'topic')} can be created when the cluster answers"
            )
        ),
    )


def _rebalance(
    desired: DesiredCluster, kafka: ObservedKafka, decision: Decision, others: Others
) -> Plan:
    """Only while nothing is rolled, no broker is leaving, and all brokers are live."""
    if (
        desired.spec.rebalance != "auto"
        or not isinstance(decision, NothingToRestart)
        or desired.leaving
    ):
        return ()
    if not desired.brokers.keys() <= kafka.live:
        return ()
    repairs = () if others.racks_by else repair_racks(desired, kafka)
    return repairs or (() if others.balance else level(desired, kafka))
