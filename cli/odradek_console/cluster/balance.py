"""Loads of the brokers now and after a proposal, as the optimizer of `odradek rebalance` sees them.

    name = balance.propose(client, wish, topics_that_stay)    # blocks for SAMPLE_S
    proposal, measured = balance.proposals[name]
    loads_of(measured, proposal.moves)                        # a row per broker, now and then

Loads are counted as if the preferred leaders led, which they do after every rebalance.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek_operator.admin.balance import observe
from odradek_operator.kafka.balance import make
from odradek_operator.kafka.balance.document import Move, Proposal, proposal_id
from odradek_operator.kafka.balance.execution import place
from odradek_operator.kafka.balance.goals import LOADS
from odradek_operator.kafka.balance.loads import Restrictions, Seen
from odradek_operator.kafka.balance.model import NO_BROKER, Cluster, build
from odradek_operator.kafka.balance.state import State
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.kafka_client import KafkaClient

logger = logging.getLogger(__name__)

SAMPLE_S = 2.0  # as `odradek rebalance propose`
MEASURED_AGE_S = 15.0  # then a page that somebody looks at measures again
PROPOSALS_MAX = 10  # that are kept for a user; the oldest is dropped
# In this order: name of the goal, title, whether it is per second.
SHOWN = (("disk", "Disk"), ("bytes-in", "Bytes in"), ("bytes-out", "Bytes out"),
         ("leaders", "Preferred leaders"))  # fmt: skip
MODES = ("full", "add-brokers", "remove-brokers", "leaders-only")


@dataclass(frozen=True)
class MeasuredLoads:
    seen: Seen
    at_s: float  # time.monotonic
    has_rates: bool

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.at_s


@dataclass(frozen=True)
class BrokerLoads:
    broker_id: int
    rack: str
    live: bool
    now: dict[str, float]  # name of the goal → its load
    then: dict[str, float]


@dataclass
class Balance:
    """Of one user: the last measurement, and proposals. Safe for threads."""

    measured: MeasuredLoads | None = None
    proposals: dict[str, tuple[Proposal, MeasuredLoads]] = field(default_factory=dict)
    _measuring: threading.Lock = field(default_factory=threading.Lock)

    def look(self, client: KafkaClient) -> MeasuredLoads:
        """What is known already; at first without rates, which takes no time."""
        known = self.measured
        if known is None:
            known = MeasuredLoads(observe(client, sample_s=0.0), time.monotonic(), has_rates=False)
            self.measured = self.measured or known
        return known

    @property
    def is_old(self) -> bool:
        known = self.measured
        return known is None or not known.has_rates or known.age_s > MEASURED_AGE_S

    def refresh(self, client: KafkaClient) -> None:
        """In the background. Does nothing while a measurement is running."""
        if not self._measuring.acquire(blocking=False):
            return
        try:
            seen = observe(client, sample_s=SAMPLE_S)
            self.measured = MeasuredLoads(seen, time.monotonic(), has_rates=True)
        except ClientError as error:  # the next page tries again
            logger.info("loads cannot be measured: %s", error)
        finally:
            self._measuring.release()

    def propose(self, client: KafkaClient, wish: make.Wish, excluded_topics: frozenset[str]) -> str:
        """The id of the proposal. Raises ValueError if the cluster cannot fulfil the wish."""
        seen = observe(client, sample_s=SAMPLE_S, restrictions=Restrictions(excluded_topics))
        measured = MeasuredLoads(seen, time.monotonic(), has_rates=True)
        proposal = make.propose(wish, seen.brokers, seen.partitions, seen.directories, seen.placed)
        while len(self.proposals) >= PROPOSALS_MAX:
            del self.proposals[next(iter(self.proposals))]
        name = proposal_id(proposal)
        self.proposals[name] = proposal, measured
        return name


def loads_of(measured: MeasuredLoads, moves: Sequence[Move] = ()) -> list[BrokerLoads]:
    cluster = build(measured.seen.brokers, measured.seen.partitions)
    now, then = _loads(cluster), _loads(_moved(cluster, moves))
    return [
        BrokerLoads(
            broker.id,
            broker.rack,
            broker.live,
            {name: values[at] for name, values in now.items()},
            {name: values[at] for name, values in then.items()},
        )
        for at, broker in enumerate(measured.seen.brokers)
    ]


def _loads(cluster: Cluster) -> dict[str, list[float]]:
    """Goal → the load of each broker, in the order of `cluster`."""
    load = State(cluster, LOADS).load
    return {
        goal.name: [float(part) * goal.total(cluster) for part in load[at]]
        for at, goal in enumerate(LOADS)
    }


def _moved(cluster: Cluster, moves: Sequence[Move]) -> Cluster:
    after = {place(move): move.after for move in moves}
    replicas = cluster.replicas.copy()
    for row in range(cluster.partitions):
        wanted = after.get(cluster.name(row))
        if wanted is not None:
            replicas[row, :] = NO_BROKER
            replicas[row, : len(wanted)] = cluster.numbers(wanted)
    return cluster.moved_to(replicas)
