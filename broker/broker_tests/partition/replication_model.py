"""A cluster that is small enough to explore: both replication state machines over logs in lists.

One partition, three brokers, a controller that is a table with compare-and-set. Messages are
unordered: each can be delivered late, twice, or never. `check` has the invariants of the TLA+
models (StrongIsr, monotone high watermark) and "no committed record lost" after every step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from odradek_broker.log.leader_epochs import LeaderEpochs
from odradek_broker.metadata.image import PartitionRegistration
from odradek_broker.partition import follower_state, leader_events, leader_state
from odradek_broker.partition.follower_state import FollowerState
from odradek_broker.partition.leader_events import Proposal
from odradek_broker.partition.leader_state import LeaderState, Peers
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId

LAG_MAX_MS = 100.0
Entry = tuple[int, int]  # (leader epoch, value)


class ListLog:
    """A log of single records."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.epochs = LeaderEpochs()
        self.high_watermark = 0
        self.log_start_offset = 0

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def append(self, entries: list[Entry]) -> None:
        for epoch, _ in entries:
            if epoch > self.epochs.latest:
                self.epochs.assign(epoch, self.log_end_offset)
            self.entries.append((epoch, _))

    def truncate_to(self, offset: int) -> None:
        del self.entries[offset:]
        self.epochs.truncate_from_end(self.log_end_offset)
        self.high_watermark = min(self.high_watermark, offset)


@dataclass
class ModelBroker:
    id: BrokerId
    peers: Peers
    log: ListLog = field(default_factory=ListLog)
    metadata_at: int = 0  # how much of the metadata log it has applied
    known: PartitionRegistration | None = None
    leading: LeaderState | None = None
    following: FollowerState | None = None


@dataclass(frozen=True)
class Message:
    kind: str
    to: BrokerId | None  # None: the controller
    body: Any


class ModelCluster:
    def __init__(self, seed: int, min_isr: int = 1) -> None:
        self.rng = Random(seed)
        self.now_ms = 0.0
        self.min_isr = min_isr
        self.values = 0
        self.bag: list[Message] = []
        self.committed: list[Entry] = []
        self.acked = 0  # how many records were committed with min ISR in force
        self.elections = 0
        self.truncated_below_high_watermark = 0
        ids = tuple(BrokerId(i) for i in (1, 2, 3))
        self.fenced: set[BrokerId] = set()
        self.broker_epochs = {broker_id: int(broker_id) for broker_id in ids}
        self.registration = PartitionRegistration(
            ids, ids, (), (), ids[0], leader_epoch=0, partition_epoch=0, directories=()
        )
        # Each entry: (registration, broker epochs, eligible brokers)
        self.metadata: list[
            tuple[PartitionRegistration, dict[BrokerId, int], frozenset[BrokerId]]
        ] = []
        self.brokers = {
            i: ModelBroker(i, Peers(i, int(i), lag_time_max_ms=LAG_MAX_MS)) for i in ids
        }
        self._publish()
        for broker_id in ids:
            self.learn(broker_id)

    # --- controller ----------------------------------------------------------------------

    def _publish(self) -> None:
        eligible = frozenset(i for i in self.broker_epochs if i not in self.fenced)
        self.metadata.append((self.registration, dict(self.broker_epochs), eligible))

    def _change(self, **changes: Any) -> None:
        self.registration = replace(
            self.registration,
            partition_epoch=self.registration.partition_epoch + 1,
            **changes,
        )
        self._publish()

    def alter_partition(self, sender: BrokerId, proposal: Proposal) -> dict[str, Any]:
        now = self.registration
        if proposal.leader_epoch < now.leader_epoch or sender != now.leader:
            return {"error": ErrorCode.fenced_leader_epoch}
        if proposal.partition_epoch != now.partition_epoch:
            return {"error": ErrorCode.invalid_update_version}
        for broker_id, epoch in proposal.isr:
            if broker_id in self.fenced or epoch not in (-1, self.broker_epochs[broker_id]):
                return {"error": ErrorCode.ineligible_replica}
        if proposal.isr_ids != now.isr:
            self._change(isr=proposal.isr_ids)
            now = self.registration
        return {
            "error": ErrorCode.none,
            "leader_epoch": now.leader_epoch,
            "partition_epoch": now.partition_epoch,
            "isr": now.isr,
        }

    def fence(self, broker_id: BrokerId) -> None:
        """A broker missed its heartbeats: out of the ISR, and no leader any more."""
        if broker_id in self.fenced:
            return
        self.fenced.add(broker_id)
        now = self.registration
        isr = tuple(i for i in now.isr if i != broker_id)
        if now.leader == broker_id:
            self.elections += 1
            leader = self.rng.choice(isr) if isr else BrokerId(-1)
            # The last one in sync stays in the ISR: only it may lead again.
            self._change(isr=isr or now.isr, leader=leader, leader_epoch=now.leader_epoch + 1)
        elif broker_id in now.isr:
            self._change(isr=isr)
        else:
            self._publish()

    def unfence(self, broker_id: BrokerId) -> None:
        if broker_id not in self.fenced:
            return
        self.fenced.discard(broker_id)
        now = self.registration
        if now.leader == -1 and broker_id in now.isr:
            self.elections += 1
            self._change(leader=broker_id, leader_epoch=now.leader_epoch + 1)
        else:
            self._publish()

    def elect(self) -> None:
        """A preferred leader election, or a bump of the epoch for the same leader."""
        usable = [i for i in self.registration.isr if i not in self.fenced]
        if usable:
            self.elections += 1
            leader = self.rng.choice(usable)
            self._change(leader=leader, leader_epoch=self.registration.leader_epoch + 1)

    # --- brokers -------------------------------------------------------------------------

    def learn(self, broker_id: BrokerId) -> None:
        """The broker applies the next entry of the metadata log."""
        broker = self.brokers[broker_id]
        if broker.metadata_at == len(self.metadata):
            return
        registration, epochs, eligible = self.metadata[broker.metadata_at]
        broker.metadata_at += 1
        broker.peers.registered, broker.peers.eligible = epochs, eligible
        before, broker.known = broker.known, registration
        if before is not None and before.leader_epoch == registration.leader_epoch:
            if broker.leading is not None:
                self._lead(
                    broker,
                    leader_events.PartitionChanged(
                        registration.partition_epoch, registration.replicas, registration.isr
                    ),
                )
                self._lead(broker, leader_events.CheckIsr())
            return
        broker.leading = broker.following = None
        if registration.leader == broker_id:
            broker.log.epochs.assign(registration.leader_epoch, broker.log.log_end_offset)
            broker.leading = LeaderState(
                broker.peers,
                registration,
                epoch_start_offset=broker.log.log_end_offset,
                log_end_offset=broker.log.log_end_offset,
                high_watermark=broker.log.high_watermark,
                min_insync_replicas=self.min_isr,
                now_ms=self.now_ms,
            )
        elif registration.leader >= 0:
            broker.following = FollowerState(
                registration.leader, registration.leader_epoch, backoff_max_ms=10
            )

    def restart(self, broker_id: BrokerId) -> None:
        """The process dies and returns with its log, as a new incarnation.

        It ignores metadata from before its registration: in that it may have been a leader without
        followers, which commits alone.
        """
        self.fence(broker_id)
        broker = self.brokers[broker_id]
        self.broker_epochs[broker_id] += 10
        self._publish()
        broker.peers = Peers(broker_id, self.broker_epochs[broker_id], lag_time_max_ms=LAG_MAX_MS)
        broker.leading = broker.following = broker.known = None
        broker.metadata_at = len(self.metadata) - 1
        self.learn(broker_id)

    def produce(self, broker_id: BrokerId) -> None:
        broker = self.brokers[broker_id]
        if broker.leading is not None:
            self.values += 1
            broker.log.append([(broker.leading.leader_epoch, self.values)])
            self._lead(broker, leader_events.Written(broker.log.log_end_offset))

    def check_isr(self, broker_id: BrokerId) -> None:
        broker = self.brokers[broker_id]
        if broker.leading is not None:
            self._lead(broker, leader_events.CheckIsr())

    def _lead(self, broker: ModelBroker, event: leader_events.Event) -> None:
        assert broker.leading is not None
        for instruction in leader_state.step(broker.leading, event, self.now_ms):
            match instruction:
                case leader_events.AdvanceHighWatermark(high_watermark):
                    assert high_watermark > broker.log.high_watermark, "it went back"
                    broker.log.high_watermark = high_watermark
                    self.acked += 1
                case leader_events.Propose(proposal):
                    self.bag.append(Message("alter", None, (broker.id, proposal)))
        broker.leading.validate()

    def fetch(self, broker_id: BrokerId) -> None:
        broker = self.brokers[broker_id]
        if broker.following is None:
            return
        position = follower_state.next_fetch(broker.following, broker.log, self.now_ms)
        if position is not None:
            epoch = broker.peers.broker_epoch
            leader = broker.following.leader
            self.bag.append(Message("fetch", leader, (broker_id, epoch, position)))

    def give_up(self, broker_id: BrokerId) -> None:
        """The follower's request timed out; its answer may still come."""
        following = self.brokers[broker_id].following
        if following is not None and following.under_way is not None:
            self._follow(
                self.brokers[broker_id],
                follower_state.FetchUnanswered(following.under_way, failed=True),
                [],
            )

    def _follow(
        self, broker: ModelBroker, event: follower_state.Event, records: list[Entry]
    ) -> None:
        following, log = broker.following, broker.log
        assert following is not None
        for instruction in follower_state.step(following, event, log, self.now_ms):
            match instruction:
                case follower_state.Append(end_offset):
                    assert end_offset == log.log_end_offset + len(records)
                    log.append(records)
                case follower_state.MoveHighWatermark(high_watermark):
                    log.high_watermark = high_watermark
                case follower_state.Truncate(offset, below):
                    self.truncated_below_high_watermark += below
                    log.truncate_to(offset)
                case _:
                    raise AssertionError(f"no log was trimmed, and yet {instruction}")
        following.validate()

    # --- messages ------------------------------------------------------------------------

    def deliver(self, index: int, *, keep: bool = False) -> None:
        if not self.bag:
            return
        index %= len(self.bag)
        message = self.bag[index] if keep else self.bag.pop(index)
        getattr(self, f"_on_{message.kind}")(message)

    def drop(self, index: int) -> None:
        if not self.bag:
            return
        message = self.bag.pop(index % len(self.bag))
        if message.kind in ("alter", "altered"):  # the sender times out
            sender, proposal = message.body[:2]
            leading = self.brokers[sender].leading
            if leading is not None:
                self._lead(self.brokers[sender], leader_events.ProposalLost(proposal))

    def _on_alter(self, message: Message) -> None:
        sender, proposal = message.body
        answer = self.alter_partition(sender, proposal)
        self.bag.append(Message("altered", sender, (sender, proposal, answer)))

    def _on_altered(self, message: Message) -> None:
        sender, proposal, answer = message.body
        broker = self.brokers[sender]
        if broker.leading is not None:
            self._lead(broker, leader_events.ProposalAnswered(proposal, **answer))

    def _on_fetch(self, message: Message) -> None:
        follower, broker_epoch, position = message.body
        assert message.to is not None
        leader = self.brokers[message.to]
        answer, records = self._read(leader, follower, broker_epoch, position)
        self.bag.append(Message("fetched", follower, (answer, records)))

    def _read(
        self,
        leader: ModelBroker,
        follower: BrokerId,
        broker_epoch: int,
        position: follower_state.FetchPosition,
    ) -> tuple[follower_state.FetchAnswered, list[Entry]]:
        """As the fetch handler treats a follower's fetch."""
        log, leading = leader.log, leader.leading
        known = leader.known.leader_epoch if leader.known else -1
        error = ErrorCode.none
        if position.leader_epoch != known:
            older = position.leader_epoch < known
            error = ErrorCode.fenced_leader_epoch if older else ErrorCode.unknown_leader_epoch
        elif leading is None:
            error = ErrorCode.not_leader_or_follower
        if error is not ErrorCode.none:
            return follower_state.FetchAnswered(position, error), []
        if position.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(position.last_fetched_epoch)
            if epoch < position.last_fetched_epoch or end_offset < position.fetch_offset:
                answer = follower_state.FetchAnswered(
                    position, high_watermark=log.high_watermark, diverging=(epoch, end_offset)
                )
                return answer, []
        try:
            self._lead(
                leader,
                leader_events.FollowerFetched(
                    follower, broker_epoch, position.fetch_offset, 0, log.log_end_offset
                ),
            )
        except KafkaError as refused:
            return follower_state.FetchAnswered(position, refused.code), []
        start = position.fetch_offset
        records = log.entries[start : start + self.rng.randint(1, 3)]
        end = start + len(records) if records else None
        answer = follower_state.FetchAnswered(
            position, high_watermark=log.high_watermark, log_start_offset=0, records_end=end
        )
        return answer, records

    def _on_fetched(self, message: Message) -> None:
        answer, records = message.body
        assert message.to is not None
        broker = self.brokers[message.to]
        if broker.following is not None:
            self._follow(broker, answer, records)

    # --- what must hold ------------------------------------------------------------------

    def check(self) -> None:
        for broker in self.brokers.values():
            high_watermark = broker.log.high_watermark
            assert high_watermark <= broker.log.log_end_offset
            visible = broker.log.entries[:high_watermark]
            shared = min(len(visible), len(self.committed))
            assert visible[:shared] == self.committed[:shared], "a committed record changed"
            if len(visible) > len(self.committed):
                self.committed = visible
        for broker_id in self.registration.isr:
            log = self.brokers[broker_id].log
            assert log.entries[: len(self.committed)] == self.committed, (
                f"StrongIsr: {broker_id} lacks committed records"
            )
        assert self.truncated_below_high_watermark == 0

    def tick(self, ms: float) -> None:
        self.now_ms += ms

    def random_step(self) -> None:
        rng = self.rng
        action = rng.choices(ACTIONS, WEIGHTS)[0]
        action(self, rng.choice((BrokerId(1), BrokerId(2), BrokerId(3))), rng.randrange(1 << 16))
        self.check()

    def heal(self) -> None:
        """All messages arrive, no broker is fenced: in the end all replicas are equal."""
        for broker_id in self.brokers:
            self.unfence(broker_id)
        for _ in range(400):
            for broker_id in self.brokers:
                self.learn(broker_id)
                self.fetch(broker_id)
            while self.bag:
                self.deliver(0)
                self.check()
            for broker_id in self.brokers:
                self.give_up(broker_id)
                self.check_isr(broker_id)
            self.tick(11)


Action = Callable[[ModelCluster, BrokerId, int], None]
WEIGHTED: list[tuple[float, Action]] = [
    (25, lambda cluster, broker, _: cluster.fetch(broker)),
    (50, lambda cluster, _, number: cluster.deliver(number)),
    (2, lambda cluster, _, number: cluster.deliver(number, keep=True)),
    (2, lambda cluster, _, number: cluster.drop(number)),
    (10, lambda cluster, broker, _: cluster.produce(broker)),
    (20, lambda cluster, broker, _: cluster.learn(broker)),
    (6, lambda cluster, broker, _: cluster.check_isr(broker)),
    (6, lambda cluster, _, number: cluster.tick((5, 20, 120)[number % 3])),
    (1, lambda cluster, broker, _: cluster.give_up(broker)),
    (0.3, lambda cluster, broker, _: cluster.fence(broker)),
    (2, lambda cluster, broker, _: cluster.unfence(broker)),
    (0.5, lambda cluster, _, __: cluster.elect()),
    (0.3, lambda cluster, broker, _: cluster.restart(broker)),
]
ACTIONS = [action for _, action in WEIGHTED]
WEIGHTS = [weight for weight, _ in WEIGHTED]
