"""The KafkaRebalances of one cluster, as a part of its pass.

    keeper.begin(items)                          # what is declared, and what was persisted
    executions = keeper.advance(View(kafka, admin, now))   # changes nothing: states, proposals
    …                                            # the plan has the moves of these executions
    for one in keeper.assessed: persist(one)     # the document, then the status
    act

A proposal is made from the loads that the brokers measured. If one of them does not answer, or
knows topics only (Apache Kafka), also from two observations of all log directories at least
SAMPLE_S apart; the first one is kept in memory, so no pass waits. At most one rebalance of a
cluster is carried out at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import msgspec

from odradek_api.kafka_rebalance.spec import Automatic, KafkaRebalanceSpec
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kafka.balance.document import Proposal, proposal_id
from odradek_operator.kafka.observed import Loads, LogSizes, ObservedKafka
from odradek_operator.kafka.rebalance_states import (
    ACTIVE,
    WantedRebalance,
    after_moves,
    after_request,
    check_due,
    due,
    execution_of,
    failed,
    imbalance,
    interrupted,
    lost,
    proposed,
    reported,
    throttle_of,
    timed,
)
from odradek_operator.kafka.rebalance_triggers import (
    Members,
    Trigger,
    automatic_of,
    lost_brokers,
    remember,
    taken_into_account,
    trigger,
)
from odradek_operator.kafka.rebalancing import RATES, REPLICAS, Execution, standing

SAMPLE_S = 2.0  # between the two observations from which rates follow
SAMPLE_MAX_S = 600.0  # an older first observation is replaced
MOVES_MAX = 10_000  # of one proposal: its document has to fit into a ConfigMap (1 MiB)


class Documents(Protocol):
    """Where proposals are kept; the names are keys of KafkaRebalances."""

    def read(self, key: str) -> Proposal | None: ...

    def write(self, key: str, proposal: Proposal) -> str:
        """Returns its name, for people."""

    def remove(self, key: str) -> None: ...


@dataclass(frozen=True)
class View:
    """The observations of a pass about the cluster."""

    kafka: ObservedKafka
    admin: KafkaAdmin
    now: float
    members: Members = field(default_factory=Members)
    read_loads: Callable[[str], Loads] = Loads  # window → what the brokers measured over it


class Measured(NamedTuple):
    """Sizes twice, the earlier first, and what the brokers measured."""

    sizes: tuple[LogSizes, LogSizes]
    loads: Loads


@dataclass(frozen=True)
class Item:
    wanted: WantedRebalance
    status: KafkaRebalanceStatus


@dataclass(frozen=True)
class Assessed:
    """A rebalance after the observation: the state to persist, and the actions."""

    wanted: WantedRebalance
    before: KafkaRebalanceStatus
    status: KafkaRebalanceStatus
    document: Proposal | None = None  # to be written before the status
    waits: str = ""

    @property
    def key(self) -> str:
        return self.wanted.key

    @property
    def changed_phase(self) -> bool:
        return self.before.phase != self.status.phase

    @property
    def resting(self) -> bool:
        """Nothing is going to happen without an event of the platform."""
        if self.status.away and automatic_of(self.wanted.spec).broker_loss_minutes:
            return False
        return self.status.phase not in ACTIVE and not self.waits

    @property
    def gone(self) -> bool:
        """Deleted, and nothing in the cluster is left of it."""
        return self.wanted.deleting and self.status.phase not in ACTIVE

    @property
    def lines(self) -> list[str]:
        """For `odradek plan`; the moves are actions of the plan."""
        if self.document is not None:
            s = self.status
            text = f"{s.moves} partitions, {s.bytes} bytes, about {s.seconds} s: {s.why}"
            left = s.moves + s.directory_moves - len(s.first_moves)
            return [
                f"propose to move for KafkaRebalance {self.key}: {text}",
                *(f"propose {move}" for move in s.first_moves),
                *([f"propose {left} more moves"] if left > 0 else []),
            ]
        if self.waits and not self.wanted.deleting:
            return [f"wait: for a proposal of KafkaRebalance {self.key}: {self.waits}"]
        return []


@dataclass
class RebalanceKeeper:
    documents: Documents
    # For `odradek plan`, which has one pass only: waits between two observations.
    sleep: Callable[[float], None] | None = None
    assessed: list[Assessed] = field(default_factory=list)
    _items: list[Item] = field(default_factory=list)
    _first: LogSizes | None = None
    _since: dict[str, float] = field(default_factory=dict)  # when a resource was first seen

    def begin(self, items: Iterable[Item]) -> None:
        self._items = sorted(items, key=lambda one: one.wanted.key)
        self.assessed = [self._report(one, one.status, "", 0.0) for one in self._items]

    @property
    def settings(self) -> frozenset[str]:
        """Settings of brokers that the next observation has to include."""
        return RATES if self._is_active else frozenset()

    @property
    def topic_settings(self) -> frozenset[str]:
        return REPLICAS if self._is_active else frozenset()

    @property
    def _is_active(self) -> bool:
        return any(
            one.status.phase in ACTIVE or one.status.phase == "Proposed" for one in self._items
        )

    @property
    def drained_by(self) -> str:
        """The KafkaRebalance that empties brokers that leave, instead of the plan."""
        return self._in_charge(lambda automatic: automatic.scale_down)

    @property
    def racks_by(self) -> str:
        """The KafkaRebalance that repairs racks, instead of the plan."""
        return self._in_charge(lambda automatic: automatic.racks)

    def _in_charge(self, of: Callable[[Automatic], bool]) -> str:
        found = (one.wanted for one in self._items if not one.wanted.stopped)
        return next((w.key for w in found if of(automatic_of(w.spec))), "")

    def advance(self, view: View | None) -> list[Execution]:
        """None: the cluster does not answer. Raises AdminError if it stops answering."""
        if not self._items:
            self.assessed, self._first = [], None
            return []
        if view is None:
            waits, now = "the cluster does not answer", time.time()
            self.assessed = [self._report(one, one.status, waits, now) for one in self._items]
            return []
        found: list[Assessed] = []
        executions: list[Execution] = []
        for one in self._items:
            seen = remember(one.wanted.spec, one.status, view.kafka, view.now)
            others = [i.wanted.key for i in self._items
                      if i is not one and i.status.phase in ACTIVE]  # fmt: skip
            busy = [*(e.owner for e in executions), *others]
            assessed, execution = self._advance_one(one, seen, view, busy)
            found.append(assessed)
            if execution is not None:
                executions.append(execution)
        self.assessed = found
        return executions

    def _advance_one(
        self, one: Item, status: KafkaRebalanceStatus, view: View, busy: Sequence[str]
    ) -> tuple[Assessed, Execution | None]:
        """`status`: the persisted one, with the brokers that are away now."""
        wanted, now = one.wanted, view.now
        since = self._since.setdefault(wanted.key, now)
        if status.phase in ACTIVE:
            gone = lost_brokers(wanted.spec, status, view.kafka, now)
            requested = interrupted(after_request(wanted, status), gone)
        else:
            event = None
            if wanted.spec is not None and not wanted.stopped:
                event = trigger(wanted.spec, status, view.kafka, view.members, now)
            why = event.why if event else due(wanted, status) or timed(wanted, status, now, since)
            if why or check_due(wanted, status, now):
                proposing = Item(wanted, status)
                return self._propose(proposing, why, view, busy, event), None
            requested = after_request(wanted, status)
            if requested.phase == "Moving" and busy:
                waits = f"KafkaRebalance {busy[0]} is carried out first"
                return self._report(one, status, waits, now), None
        status, execution = self._execute(one, requested, view)
        return self._report(one, status, "", now), execution

    def _execute(
        self, one: Item, status: KafkaRebalanceStatus, view: View
    ) -> tuple[KafkaRebalanceStatus, Execution | None]:
        if status.phase not in ACTIVE:
            return status, None
        document = self.documents.read(one.wanted.key)
        if document is None or proposal_id(document) != status.proposal:
            status, removal = lost(one.wanted.key, status)
            if not one.status.proposal:  # this state was persisted by an earlier pass
                status = after_moves(status, standing(removal, view.kafka), view.now)
            return status, removal if status.phase in ACTIVE else None
        sizes = view.admin.log_sizes() if document.directory_moves else None
        gone = lost_brokers(one.wanted.spec, status, view.kafka, view.now)
        execution = execution_of(one.wanted.key, status, document, sizes, gone)
        assert execution is not None
        if status.phase == one.status.phase:  # the state was persisted by an earlier pass
            status = after_moves(status, standing(execution, view.kafka), view.now)
            execution = execution_of(one.wanted.key, status, document, sizes, gone)
        return status, execution

    def _propose(
        self, one: Item, why: str, view: View, busy: Sequence[str], event: Trigger | None
    ) -> Assessed:
        """`why` is empty if only the imbalance has to be checked."""
        now, spec = view.now, one.wanted.spec
        assert spec is not None
        if busy:
            waits = f"KafkaRebalance {busy[0]} is carried out first"
            return self._report(one, one.status, waits if why else "", now)
        if moving := sum(p.moving for p in view.kafka.partitions):
            waits = f"{moving} partitions are moving"
            return self._report(one, one.status, waits if why else "", now)
        measured = self._measure(spec, view)
        if measured is None:
            return self._report(one, one.status, "rates are being measured", now)
        try:
            proposal = _make(one.wanted, view, measured, event)
        except ValueError as error:
            status = failed(one.wanted, one.status, str(error), now, event)
            return self._report(one, status, "", now)
        if not why and spec.imbalance is not None:
            worst = imbalance(proposal)
            if worst <= spec.imbalance.percent / 100:
                checked = proposed(one.wanted, one.status, proposal, "", now).checked_at
                status = msgspec.structs.replace(one.status, checked_at=checked)
                return self._report(one, status, "", now)
            why = f"{worst:.0%} of a goal is outside of its bands, more than "
            why += f"{spec.imbalance.percent}%"
        known = taken_into_account(event, proposal.mode, one.status, view.kafka)
        status = proposed(one.wanted, one.status, proposal, why, now, event)
        status = msgspec.structs.replace(status, known=known)
        if status.phase == "Balanced":
            return self._report(one, status, "", now)
        status = msgspec.structs.replace(status, proposal=proposal_id(proposal))
        return replace(self._report(one, status, "", now), document=proposal)

    def _measure(self, spec: KafkaRebalanceSpec, view: View) -> Measured | None:
        """None: a first observation was made, and the next one has to wait a little."""
        loads = view.read_loads(spec.window)
        sizes = view.admin.log_sizes()
        if loads.know(view.kafka.live) and not loads.topics:
            return Measured((sizes, sizes), loads)
        if self.sleep is not None:
            self.sleep(SAMPLE_S)
            return Measured((sizes, view.admin.log_sizes()), loads)
        first = self._first
        if first is None or sizes.at - first.at > SAMPLE_MAX_S:
            self._first = sizes
        if first is None or sizes.at - first.at < SAMPLE_S:
            return None
        self._first = sizes
        return Measured((first, sizes), loads)

    def _report(self, one: Item, status: KafkaRebalanceStatus, waits: str, now: float) -> Assessed:
        made = reported(one.wanted, status, waits, now) if now else status
        return Assessed(one.wanted, one.status, made, waits=waits)


def _make(
    wanted: WantedRebalance, view: View, measured: Measured, event: Trigger | None = None
) -> Proposal:
    """Raises ValueError, in a sentence, for a request that the cluster cannot fulfil."""
    from odradek_operator.kafka.balance import make  # numpy: only with a proposal
    from odradek_operator.kafka.balance.loads import Restrictions, see

    spec, kafka = wanted.spec, view.kafka
    assert spec is not None
    closed = frozenset(spec.excluded_brokers) | set(view.members.leaving)
    seen = see(
        kafka.partitions, kafka.registered, kafka.live, measured.sizes,
        Restrictions(frozenset(spec.excluded_topics), closed, spec.replicas_max or float("inf")),
        measured.loads,
    )  # fmt: skip
    wish = make.Wish(
        mode=event.mode if event else spec.mode,
        brokers=event.brokers if event else tuple(spec.brokers),
        disks=frozenset() if event else frozenset((d.broker, d.path) for d in spec.disks),
        goals=tuple(spec.goals),
        price=spec.price,
        throttle=throttle_of(spec),
    )
    proposal = make.propose(wish, seen.brokers, seen.partitions, seen.directories, seen.placed)
    return _limited(proposal)


def _limited(proposal: Proposal) -> Proposal:
    count = len(proposal.moves) + len(proposal.directory_moves)
    if count <= MOVES_MAX:
        return proposal
    text = f"the proposal has {count} moves; these are the first {MOVES_MAX}, the next proposal "
    text += "has the others"
    moves = proposal.moves[:MOVES_MAX]
    left = MOVES_MAX - len(moves)
    return msgspec.structs.replace(
        proposal,
        moves=moves,
        directory_moves=proposal.directory_moves[:left],
        problems=[text, *proposal.problems],
        bytes=sum(m.bytes for m in moves),
    )


def announcements(assessed: Iterable[Assessed]) -> Mapping[str, tuple[str, str, bool]]:
    """Key → reason, message and whether it is a warning; of rebalances whose phase changed."""
    found = {}
    for one in assessed:
        if one.changed_phase:
            (ready, *_) = one.status.conditions
            found[one.key] = ready.reason, ready.message, one.status.phase == "Failed"
    return found
