"""Rebalancing through the admin protocol: what the optimizer needs to know, and its moves.

    seen = observe(client, sample_s=2.0, loads=loads)     # sizes, rates, racks, room
    cluster = model.build(seen.brokers, seen.partitions)
    rebalance = Rebalance(client, proposal)
    while not (now := rebalance.step()).finished: ...     # safe to stop and to repeat

Works with any Kafka cluster. Sizes are those of DescribeLogDirs. Bytes per second are those that
the brokers measured (loads.py), or else the growth of the leaders' logs between two questions, see
kafka/balance/loads.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from odradek_operator.admin.kafka_admin import MIN_ISR, partitions_of
from odradek_operator.admin.throttles import log_sizes, remove_throttle, set_throttle
from odradek_operator.kafka.balance import execution
from odradek_operator.kafka.balance.document import Move, Proposal
from odradek_operator.kafka.balance.execution import ExecutionProgress, Stage, place
from odradek_operator.kafka.balance.loads import Restrictions, Seen, see
from odradek_operator.kafka.observed import Loads, Partition
from odradek_protocol.client import ClientError, KafkaClient
from odradek_protocol.client.admin import brokers, configs, partitions
from odradek_protocol.client.admin.configs import ResourceType
from odradek_protocol.client.admin.partitions import ElectionType
from odradek_protocol.ids import TopicPartition

CHUNK = 500  # resources and partitions in one request


def observe(
    client: KafkaClient,
    *,
    sample_s: float,
    restrictions: Restrictions = Restrictions(),  # noqa: B008 (frozen)
    sleep: Callable[[float], None] = time.sleep,
    loads: Loads | None = None,
) -> Seen:
    """Blocks for `sample_s`, in which the growth of logs is measured; 0: rates are unknown.

    `loads`: what the brokers measured. If all live ones did, nothing has to be measured here.
    """
    known = brokers.describe_cluster(client).brokers
    racks = {b.broker_id: b.rack or "" for b in known.values()}
    live = frozenset(b.broker_id for b in known.values() if not b.fenced)
    if loads is not None and loads.know(live) and not loads.topics:
        sample_s = 0.0
    first = log_sizes(client)
    if sample_s > 0:
        sleep(sample_s)
    sizes = log_sizes(client) if sample_s > 0 else first
    return see(_partitions(client).values(), racks, live, (first, sizes), restrictions, loads)


def _partitions(client: KafkaClient) -> dict[TopicPartition, Partition]:
    """As the operator observes them (kafka_admin.py): moves are listed before and after."""
    moves = partitions.list_reassignments(client)
    topics = {n: t for n, t in client.metadata().topics.items() if t.error is None}
    moves |= partitions.list_reassignments(client)
    answers = configs.describe_configs(client, ResourceType.TOPIC, topics, {MIN_ISR})
    settings = {n: a for n, a in answers.items() if not isinstance(a, ClientError)}
    there = {n: t for n, t in topics.items() if n in settings}
    return {p.id: p for p in partitions_of(there, moves, settings)}


class RefusedError(Exception):
    """The cluster refused a move or a setting, in its own words."""


class Rebalance:
    """Carries a proposal out, one step at a time. Every step begins with an observation."""

    def __init__(self, client: KafkaClient, proposal: Proposal, throttle: float = 0.0) -> None:
        self._client = client
        self.moves = list(proposal.moves)
        self._throttle = throttle or proposal.throttle
        self._removed = proposal.removed
        self._live: frozenset[int] = frozenset()

    def look(self) -> ExecutionProgress:
        found = _partitions(self._client)
        cluster = brokers.describe_cluster(self._client).brokers
        self._live = frozenset(b.broker_id for b in cluster.values() if not b.fenced)
        hold = execution.hold_reason(found.values(), self._live, cluster, self._removed)
        return execution.progress(self.moves, found, self._throttle, hold)

    def step(self) -> ExecutionProgress:
        """Elects, and begins the next moves; ends the throttle when all are done."""
        now = self.look()
        if now.finished:
            self.remove_throttle()
            return now
        if ready := [p for p, stage in now.stages.items() if stage is Stage.ELECTING]:
            partitions.elect_leaders(self._client, ElectionType.PREFERRED, ready)
        if chosen := execution.next_moves(self.moves, now, self._throttle):
            self._set_throttle()
            self._submit({place(move): move.after for move in chosen})
        return now

    def stop(self) -> ExecutionProgress:
        """Cancels the moves that are under way; their partitions keep the old replicas.

        Kafka keeps them in the order of the list with old and new ones, so the preferred leader may
        be another: the old order is submitted again, which copies nothing.
        """
        now = self.look()
        moving = [p for p, stage in now.stages.items() if stage is Stage.MOVING]
        self._submit(dict.fromkeys(moving))
        self.remove_throttle()
        found = _partitions(self._client)
        before = {place(m): m.before for m in self.moves if place(m) in moving}
        mixed = {p: old for p, old in before.items() if p in found and found[p].target != old}
        self._submit({p: old for p, old in mixed.items() if set(found[p].target) == set(old)})
        return self.look()

    def _submit(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        names = list(wanted)
        for at in range(0, len(names), CHUNK):
            part = {name: wanted[name] for name in names[at : at + CHUNK]}
            refused = partitions.alter_reassignments(self._client, part)
            for name, error in refused.items():
                if error.name != "NO_REASSIGNMENT_IN_PROGRESS":  # it ended meanwhile
                    raise RefusedError(f"{name}: {error.detail}")

    # -- throttle ----------------------------------------------------------------------------------

    def _set_throttle(self) -> None:
        """Before the moves, and again with each batch: a killed process may have removed it."""
        at = self._throttled()
        topics = execution.throttled_topics(self.moves)
        _check(set_throttle(self._client, at, self._throttle, topics))

    def remove_throttle(self) -> None:
        """From all brokers and topics of the proposal, whether it is there or not."""
        at = self._throttled()
        _check(remove_throttle(self._client, at, execution.throttled_topics(self.moves)))

    def _throttled(self) -> list[int]:
        """Without brokers that are removed and down: they answer no request."""
        down = set(self._removed) - self._live
        return [b for b in execution.throttled_brokers(self.moves) if b not in down]


def _check(refused: Mapping[str, str]) -> None:
    for name, why in refused.items():
        raise RefusedError(f"{name}: {why}")


def way_back(proposal: Proposal, now: ExecutionProgress) -> list[Move]:
    """The moves that undo what has been done of a proposal."""
    done = (Stage.DONE, Stage.ELECTING)
    return execution.reversed_moves(m for m in proposal.moves if now.stages[place(m)] in done)
