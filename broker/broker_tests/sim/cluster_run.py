"""One run of a cluster: brokers, producers and consumers, an operator, faults, heal, check.

    0 s         brokers start, a topic is made (3 replicas, on 3–5 brokers)
    FAULTS_MS   heal; new writes stop, the operator moves nothing any more
    + LIVE_MS   at the latest: every broker serves, every partition has a leader and all its
                replicas in sync, and their logs are equal; then one more write is acknowledged

Clients always reach every broker, also one that is cut off from the others, because a leader that
does not know that it was replaced is the most dangerous one. They write to any broker that believes
that it leads, mostly with acks=all, and send again what was not acknowledged.

The guarantees, and so the faults of disks that are allowed:

    kill -9        loses what was not handed to the kernel. Any number of brokers at any time.
    power loss     loses what was not synced. Of one broker at a time, while another holds all
                   that is committed; until it has registered again nobody else is killed. With
                   flush.messages=1 (a part of the seeds): of all brokers, at any time.
    disk replaced  as a power loss, and everything is gone.

Seeds with min.insync.replicas=1 promise nothing for a disk that loses something: kill -9 only.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import (
    Callable,
    Iterator,
)
from dataclasses import dataclass, field
from typing import Any

from broker_tests.controller.support import create, new_topic
from broker_tests.sim import cluster_coverage
from broker_tests.sim.cluster_ambush import Ambusher, draw_profile
from broker_tests.sim.cluster_checker import ClusterChecker
from broker_tests.sim.cluster_controller import Records
from broker_tests.sim.cluster_injector import ClusterInjector
from broker_tests.sim.cluster_log import Entry
from broker_tests.sim.cluster_node import HEARTBEAT_MS, ClusterNode
from broker_tests.sim.cluster_operator import SimOperator
from broker_tests.sim.cluster_security import (
    CHECK_INTERVAL_MS,
    TOKEN_SETTINGS,
    disagreement,
    kept_too_long,
)
from broker_tests.sim.cluster_violations import errors_are_violations
from broker_tests.sim.faults import Fault
from broker_tests.sim.network import Weather
from broker_tests.sim.outcome import RunOutcome
from broker_tests.sim.raft_checker import RaftChecker
from broker_tests.sim.raft_node import new_uuid
from broker_tests.sim.raft_run import CALM_CONFIG
from broker_tests.sim.world import SimulationError, World
from odradek_broker.metadata.image import PartitionRegistration
from odradek_broker.raft.errors import RaftError
from odradek_broker.raft.values import ReplicaKey
from odradek_broker.raft.voters import Voter, VoterSet
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset, TopicPartition

FORM_MS = 4_000  # a cluster forms and has its topic within this time
FAULTS_MS = 5_000
LIVE_MS = 8_000
QUORUM = 3
TOPIC = ClusterNode.topic
RETRY_WRITE_MS = 300
SETTINGS = {
    "broker.session.timeout.ms": "500",
    "broker.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "replica.lag.time.max.ms": "400",
    "replica.fetch.backoff.ms": "100",
    "unclean.leader.election.interval.ms": "1000",
    "leader.imbalance.check.interval.seconds": "2",
    **TOKEN_SETTINGS,
}


@dataclass
class Outcome(RunOutcome):
    elections: int = 0
    acknowledged: int = 0
    reads: int = 0
    met: cluster_coverage.Met = field(default_factory=Counter)  # which fault met which state


class Write:
    """One record in flight, and the waiter for its acknowledgement (`AckWaiter`)."""

    def __init__(self, run: ClusterRun, name: TopicPartition, value: int, acks_all: bool) -> None:
        self.run = run
        self.name = name
        self.value = value
        self.acks_all = acks_all
        self.offset: Offset = -1
        self.done = False

    def send_to(self, node: ClusterNode) -> None:
        partition = node.partition(self.name)
        if partition is None or partition.leading is None or self.done:
            return
        try:
            if self.acks_all:
                partition.check_in_sync_replicas()
            info = partition.append(self.value, node.clock.now_ms())  # type: ignore[arg-type]
        except KafkaError:
            return
        self.offset = info.last_offset
        if self.acks_all:
            partition.when_committed(info.last_offset, self, info.last_offset)
        node.partitions.mark_dirty(partition)

    def acknowledged(self, index: Offset, error: ErrorCode) -> None:
        """`index` is the offset that this attempt got."""
        if not error and not self.done:
            self.done = True
            self.run.world.record(f"ack {self.value} at {self.name} {index}")
            self.run.cluster.acked(self.name, index, self.value)


class ClusterRun:
    faults_ms = FAULTS_MS
    injector_class = ClusterInjector

    def __init__(
        self,
        seed: int | str,
        *,
        faults: tuple[Fault, ...] | None = None,
        keep_trace: bool = False,
    ) -> None:
        self.world = self._make_world(seed, keep_trace)
        rng = self.world.rng("setup")
        self.raft = RaftChecker(self.world)
        self.durable = rng.random() < 0.2
        self.min_isr = rng.choice((1, 2, 2, 2, 2))
        self.loses_power = rng.random() < 0.5
        self.partition_count = rng.choice((1, 1, 2))
        self.cluster = ClusterChecker(self.world, self.min_isr, self.durable)
        weather = Weather(latency_max_ms=rng.choice((4, 10, 25)))
        self._target_rng = self.world.rng("target")
        self.injector = self.injector_class(self.world, self.may_lose, self._leader_id, weather)
        self.injector.cluster = self.cluster
        self.injector.ambusher = Ambusher(self.world, self._registrations, self.may_lose)
        node_ids = tuple(range(1, rng.choice((3, 3, 4, 5)) + 1))
        self.nodes: dict[int, ClusterNode] = {}
        self._records = Records()
        self._settings = Settings(SETTINGS)
        self._add_nodes(node_ids)
        self._load_rng = self.world.rng("load")
        self.operator = SimOperator(
            self.world, self.nodes, self.cluster, TOPIC, self._data_registrations
        )
        self.operator.acts = rng.random() < 0.6
        self._pauses = self.world.rng("pauses").random() < 0.3
        self._newest_epochs: dict[TopicPartition, LeaderEpoch] = {}
        self._values = 0
        self._met: cluster_coverage.Met = Counter()
        self._fault_ends_ms: list[float] = []
        self._loaded = True
        self._unacknowledged: list[Write] = []
        self._reads: dict[tuple[int, TopicPartition], Offset] = {}
        drawn, self.operator.restless = draw_profile(self.world.rng("faults"), node_ids, FAULTS_MS)
        self.faults = drawn if faults is None else faults

    def _make_world(self, seed: int | str, keep_trace: bool) -> World:
        return World(seed, keep_trace=keep_trace)

    def _make_node(self, node_id: int, **options: Any) -> ClusterNode:
        return ClusterNode(self.world, node_id, CALM_CONFIG, **options)

    def _add_nodes(self, node_ids: tuple[int, ...]) -> None:
        rng = self.world.rng("voters")
        voters = VoterSet(tuple(Voter(ReplicaKey(i, new_uuid(rng))) for i in node_ids[:QUORUM]))
        for node_id in node_ids:
            node = self._make_node(
                node_id,
                formatted_with=voters if node_id <= QUORUM else VoterSet(),
                peers=node_ids,
                checker=self.raft,
                injector=self.injector,
                cluster=self.cluster,
                records=self._records,
                settings=self._settings,
                loses_tail=self._loses_tail,
                ambusher=self.injector.ambusher,
            )
            self.nodes[node_id] = node
            self.raft.nodes[node_id] = node
            self.world.add(node_id, node)

    # ------------------------------------------------------------ what may be lost

    def _loses_tail(self, node_id: int) -> bool:
        if self.durable:
            return True
        return self.loses_power and not self.injector.crashes_all and self.may_lose(node_id)

    def may_lose(self, node_id: int) -> bool:
        """Whether the cluster must recover from it."""
        if self.min_isr < 2 or any(lost != node_id for lost in self.cluster.lost):
            return False
        image = self.cluster.image
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                held = (*partition.isr, *partition.eligible_leader_replicas)
                if not any(r != node_id and self._serves(r) for r in held):
                    return False
        return bool(image.topics)

    def _serves(self, node_id: int) -> bool:
        """Up, and as the incarnation that is registered: it was not killed just now."""
        broker = self.cluster.image.brokers.get(BrokerId(node_id))
        node = self.nodes[node_id]
        return (
            self.world.hosts[node_id].up
            and broker is not None
            and not broker.fenced
            and broker.incarnation_id == node.incarnation_id
        )

    def _leader_id(self) -> int | None:
        """Of the quorum or of a partition: faults may hit either."""
        controllers = [i for i, node in self.nodes.items() if node.is_leader]
        leaders = [p.leader for p in self._registrations() if p.leader >= 0]
        candidates = controllers if self._target_rng.random() < 0.3 else leaders
        return self._target_rng.choice(candidates) if candidates else None

    def _registrations(self) -> list[PartitionRegistration]:
        topic = self.cluster.image.topics.get(TOPIC)
        return list(topic.partitions.values()) if topic else []

    def _data_registrations(self) -> list[PartitionRegistration]:
        """Without internal topics, which come after the data."""
        return self._registrations()[: self.partition_count]

    # ------------------------------------------------------------ phases

    def run(self) -> Outcome:
        outcome = Outcome(self.world.seed, faults=self.faults)
        try:
            with errors_are_violations(self.cluster, self.is_expected):
                self._run_phases(outcome)
        except (SimulationError, RaftError) as error:
            outcome.failure = f"{type(error).__name__}: {error}"
        except Exception:
            outcome.failure = traceback.format_exc(limit=-4)
        if self.cluster.violation is not None:
            outcome.failure = self.cluster.violation
        outcome.trace_hash = self.world.trace_hash()
        outcome.trace = self.world.trace or []
        outcome.events = self.world.events
        outcome.elections = self.cluster.elections
        outcome.acknowledged = self.cluster.acknowledged
        outcome.reads = self.cluster.reads
        outcome.met = self._met
        return outcome

    def is_expected(self, error: str) -> bool:
        """Whether production code may log this at level ERROR."""
        return False

    def _run_phases(self, outcome: Outcome) -> None:
        world = self.world
        for node_id in self.nodes:
            world.start(node_id)
        self._pass_until(FORM_MS, self._unformed, "forming")
        started_ms = world.now_ms
        for fault in self.faults:
            world.at(started_ms + fault.at_ms, self._begin_fault, fault)
        world.after(1, self._produce)
        world.after(20, self._consume)
        self.operator.start(300)
        self._pass(self.faults_ms)
        self._loaded = False
        self.operator.stop()
        self.injector.heal()
        healed_ms = world.now_ms
        self._pass_until(LIVE_MS, self._unsettled, "after the faults")
        self._last_writes()
        if self.operator.changes_security:
            self._pass(2 * CHECK_INTERVAL_MS)
            if wrong := kept_too_long(self.cluster.image, world.now_ms):
                raise SimulationError(wrong)
        outcome.healed_in_ms = world.now_ms - healed_ms

    def _begin_fault(self, fault: Fault) -> None:
        now_ms = self.world.now_ms
        under_way = sum(end_ms > now_ms for end_ms in self._fault_ends_ms)
        cluster_coverage.note(self._met, self, fault, under_way)
        self._fault_ends_ms.append(now_ms + fault.duration_ms)
        self.injector._begin(fault)

    def partition_names(self) -> Iterator[TopicPartition]:
        """Of the topic under test, as far as it exists."""
        topic = self.cluster.image.topics.get(TOPIC)
        for index in topic.partitions if topic else ():
            yield TopicPartition(TOPIC, index)

    def _pass(self, ms: int) -> None:
        cluster = self.cluster
        self.world.run_until(self.world.now_ms + ms, lambda: cluster.violation is not None)
        if cluster.violation is not None:
            raise SimulationError(cluster.violation)

    def _pass_until(self, within_ms: int, missing: Callable[[], str | None], when: str) -> None:
        deadline_ms = self.world.now_ms + within_ms
        while self.world.now_ms < deadline_ms:
            self._pass(50)
            if missing() is None:
                return
        raise SimulationError(f"{when}: not within {within_ms} ms: {missing()}")

    def newest_leader(self, name: TopicPartition) -> ClusterNode | None:
        """The leader of the newest epoch; clients do not go back to one that was replaced."""
        found: ClusterNode | None = None
        for node_id, node in self.nodes.items():
            if not self.world.hosts[node_id].up or not node.serves:
                continue
            partition = node.partition(name)
            if partition is None or partition.leading is None:
                continue
            if partition.leader_epoch >= self._newest_epochs.get(name, -1):
                self._newest_epochs[name] = partition.leader_epoch
                found = node
        return found

    def _all_get_on(self, within_ms: int, done: Callable[[], list[int]], wrong: str) -> None:
        """After the heal: each of the clients is served again."""
        before = done()
        for _ in range(within_ms // 200):
            self._pass(200)
            if all(now > then for now, then in zip(done(), before, strict=True)):
                return
        raise SimulationError(wrong)

    def _unformed(self) -> str | None:
        image = self.cluster.image
        if len(image.usable_brokers()) < len(self.nodes):
            return "brokers"
        if TOPIC not in image.topics:
            self._ask_for_topic(TOPIC, self.partition_count)
            return "topic"
        return None

    def _ask_for_topic(self, name: str, partitions: int, **more: str) -> None:
        assignments = {index: self.operator.draw_replicas() for index in range(partitions)}
        configs: dict[str, str | None] = {"min.insync.replicas": str(self.min_isr), **more}
        if self.durable:
            configs["flush.messages"] = "1"
        self.operator.ask("create_topics", create(new_topic(name, 0, 0, assignments, configs)))

    # ------------------------------------------------------------ heal

    def _unsettled(self) -> str | None:
        image = self.cluster.image
        for node in self.nodes.values():
            broker = image.brokers.get(BrokerId(node.node_id))
            if broker is None or not broker.active or broker.epoch != node.broker_epoch:
                return f"broker {node.node_id} does not serve"
            if node.metadata.image.offset != image.offset:
                return f"broker {node.node_id} is behind with the metadata"
            if wrong := disagreement(image, node.metadata.image):
                raise SimulationError(f"broker {node.node_id}: {wrong}")
        for index, registration in image.topics[TOPIC].partitions.items():
            if registration.leader < 0 or set(registration.isr) != set(registration.replicas):
                return f"{index}: {registration}"
            if registration.adding_replicas or registration.removing_replicas:
                return f"{index}: {registration}"
            leader = self.nodes[registration.leader].partition(TopicPartition(TOPIC, index))
            if leader is None or leader.leading is None:
                return f"{index}: {registration.leader} does not lead yet"
            end = leader.log.log_end_offset
            for replica in registration.replicas:
                log = self.nodes[replica].data.logs.get(TopicPartition(TOPIC, index))
                if log is None:
                    return f"{index}: {replica} does not host it yet"
                if (log.log_end_offset, log.high_watermark) != (end, end):
                    return f"{index}: {replica} is at {log.log_end_offset}, leader at {end}"
        return None

    def _last_writes(self) -> None:
        """All replicas are equal, and new writes are acknowledged at once."""
        for name, committed in self.cluster.committed.items():
            registration = self.cluster.image.topics[TOPIC].partitions[name.partition]
            for replica in registration.replicas:
                if self.nodes[replica].data.logs[name].entries != committed:
                    raise SimulationError(f"{replica} has other records of {name} than committed")
        writes = [self._write(TopicPartition(TOPIC, i), True) for i in range(self.partition_count)]
        for _ in range(10):
            self._pass(200)
            for write in writes:
                self._send(write)
        if not all(write.done for write in writes):
            raise SimulationError("a write after the heal is not acknowledged")

    # ------------------------------------------------------------ clients

    def _produce(self) -> None:
        if not self._loaded:
            return
        rng = self._load_rng
        if self._unacknowledged and rng.random() < 0.3:
            write = rng.choice(self._unacknowledged)
            if write.done:
                self._unacknowledged.remove(write)
            else:
                self._send(write)
        else:
            name = TopicPartition(TOPIC, rng.randrange(self.partition_count))
            write = self._write(name, rng.random() < 0.8)
            if write.acks_all:
                self._unacknowledged.append(write)
        # Sometimes there are no writes, so that lagging followers look as if they were in sync.
        idle = self._pauses and rng.random() < 0.03
        self.world.after(rng.randint(100, 900) if idle else rng.randint(1, 30), self._produce)

    def _write(self, name: TopicPartition, acks_all: bool) -> Write:
        self._values += 1
        write = Write(self, name, self._values, acks_all)
        self._send(write)
        return write

    def _send(self, write: Write) -> None:
        leaders = [
            node
            for node in self.nodes.values()
            if self.world.hosts[node.node_id].up and self._leads(node, write.name)
        ]
        if leaders:
            node = self._load_rng.choice(leaders)
            delay_ms = self._load_rng.randint(0, 5)
            self.world.after_on(node.node_id, delay_ms, write.send_to, node)

    def _leads(self, node: ClusterNode, name: TopicPartition) -> bool:
        partition = node.partition(name)
        return partition is not None and partition.leading is not None

    def _consume(self) -> None:
        """Some consumer reads on, at the leader or at a follower."""
        if not self._loaded:
            return
        rng = self._load_rng
        node = rng.choice(list(self.nodes.values()))
        name = TopicPartition(TOPIC, rng.randrange(self.partition_count))
        if self.world.hosts[node.node_id].up:
            self.world.after_on(node.node_id, 0, self._read, node, name, rng.randrange(3))
        self.world.after(rng.randint(5, 60), self._consume)

    def _read(self, node: ClusterNode, name: TopicPartition, consumer: int) -> None:
        partition = node.partition(name)
        if partition is None or (partition.leading is None and partition.following is None):
            return
        at = self._reads.get((consumer, name), 0)
        log = partition.log
        entries: list[Entry] = log.entries[at : partition.last_fetchable_offset(False)]  # type: ignore[attr-defined]
        self.cluster.read(name, at, entries)
        self._reads[consumer, name] = at + len(entries)


def run_seed(seed: int | str, *, keep_trace: bool = False) -> Outcome:
    return ClusterRun(seed, keep_trace=keep_trace).run()
