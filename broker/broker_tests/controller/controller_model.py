"""The active controller under random events, and the invariants of partitions that always hold.

Brokers start, die, stop, lose their disks; leaders shrink and expand ISRs, sometimes late;
operators create, delete, move, elect, change settings; controllers fail over. After each step
the invariants below hold, and whenever all brokers are alive, every partition whose data exists
has a leader and every deletion is complete.

A small model of the data tells a clean election from one that loses records: a log is a list of
writes, each named by the leader epoch that made it. A write is committed when the whole ISR has
it and the ISR is not below min.insync.replicas, as in partition/leader_state. A
replica that stops uncleanly may lose its newest writes; one that loses its disk loses all.
"""

import contextlib
import sys
from collections.abc import Iterable
from random import Random
from uuid import UUID

from broker_tests.controller.active_support import World, directory, set_config
from broker_tests.controller.support import delete
from odradek_broker.controller.context import ControllerContext
from odradek_broker.metadata.image import PartitionRegistration, TopicImage
from odradek_broker.metadata.records import NO_LEADER
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.ids import (
    BrokerId,
)
from odradek_protocol.messages.struct import Struct

BROKERS = (1, 2, 3, 4)
TOPICS_MAX = 5
Key = tuple[UUID, int]
Log = tuple[int, ...]


def common(logs: Iterable[Log]) -> Log:
    """The longest common prefix of the logs."""
    first, *others = logs
    for other in others:
        same = 0
        while same < min(len(first), len(other)) and first[same] == other[same]:
            same += 1
        first = first[:same]
    return first


class ControllerModel:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.trace: list[str] = []
        self.world = World(len(BROKERS), racks={1: "a", 2: "b", 3: "a", 4: "b"})
        self.topics = 0
        self.stopping: int | None = None
        self.running = dict.fromkeys(BROKERS, True)
        self.disk = dict.fromkeys(BROKERS, 0)
        self.clean_epoch = dict.fromkeys(BROKERS, -1)  # broker epochs that clean shutdowns recorded
        self.epochs: dict[Key, tuple[int, int]] = {}
        self.committed: dict[Key, Log] = {}
        self.held: dict[tuple[Key, int], Log] = {}  # by partition and replica
        self.unclean_was_allowed: set[Key] = set()  # by a topic's setting or an operator
        self.in_flight: list[Struct] = []  # proposals on their way
        self.create((1, 2), 1, unclean=False, min_isr=2)
        self.create((2, 3, 1), 2, unclean=False, min_isr=2)
        self.create((3, 1, 2), 1, unclean=False, min_isr=1)

    def run(self, steps: int) -> None:
        names = [name for name, weight in STEP_WEIGHTS.items() for _ in range(weight)]
        for _ in range(steps):
            name = self.rng.choice(names)
            self.trace.append(name)
            getattr(self, name)()
            self.check()

    # -- helpers ---------------------------------------------------------------------------

    def partitions(self) -> list[tuple[Key, TopicImage, PartitionRegistration]]:
        return [
            ((topic.id, index), topic, partition)
            for topic in self.world.image.topics.values()
            for index, partition in topic.partitions.items()
        ]

    def broker(self) -> int:
        return self.rng.choice(BROKERS)

    def chance(self, share: float = 0.5) -> bool:
        return self.rng.random() < share

    def alive(self, broker: int) -> bool:
        return self.running[broker] and broker in self.world.image.brokers

    def beat(self) -> None:
        for broker in BROKERS:
            if self.alive(broker):
                self.world.heartbeat(broker, want_shut_down=broker == self.stopping)

    def time_passes(self) -> None:
        """The sessions of dead brokers end."""
        half_ms = self.world.active.sessions.timeout_ms / 2 + 1
        for _ in range(2):
            self.world.now_ms += half_ms
            self.beat()
        self.world.tick()

    def log(self, key: Key, replica: int) -> Log:
        return self.held.get((key, replica), ())

    def has_all(self, key: Key, replica: int) -> bool:
        committed = self.committed.get(key, ())
        return self.log(key, replica)[: len(committed)] == committed

    # -- topics ------------------------------------------------------------------------------

    def create(self, replicas: tuple[int, ...], count: int, *, unclean: bool, min_isr: int) -> None:
        usable = {broker.id for broker in self.world.image.usable_brokers()}
        registered = [r for r in replicas if r in self.world.image.brokers]
        if self.topics >= TOPICS_MAX or not usable & set(registered):
            return
        self.topics += 1
        configs = {
            "unclean.leader.election.enable": str(unclean).lower(),
            "min.insync.replicas": str(min_isr),
        }
        self.world.topic(f"t{self.topics}", [registered] * count, configs)

    def create_topic(self) -> None:
        replicas = tuple(self.rng.sample(BROKERS, self.rng.randint(1, 4)))
        count, min_isr = self.rng.randint(1, 3), self.rng.choice([1, 2, 2, 3])
        self.create(replicas, count, unclean=self.chance(), min_isr=min_isr)

    def delete_topic(self) -> None:
        names = sorted(self.world.image.topics)
        if len(names) > 1:
            request = delete(self.rng.choice(names))
            self.world.decide(self.world.active.delete_topics(request))

    def change_min_isr(self) -> None:
        value = self.rng.choice("123")
        for name in sorted(self.world.image.topics):
            request = set_config(name, "min.insync.replicas", value)
            self.world.decide(self.world.active.incremental_alter_configs(request))

    # -- the data ----------------------------------------------------------------------------

    def write(self) -> None:
        """Every leader writes; all of its ISR and some of the others fetch everything."""
        for key, topic, partition in self.partitions():
            if partition.leader == NO_LEADER or not self.running[partition.leader]:
                continue
            writes = (partition.leader_epoch,) * self.rng.randint(1, 3)
            log = self.log(key, partition.leader) + writes
            self.held[key, partition.leader] = log
            for replica in partition.replicas:
                if self.running[replica] and (replica in partition.isr or self.chance()):
                    self.held[key, replica] = log
            configs = self.world.image.topic_config(topic.name)
            min_isr = min(int(configs["min.insync.replicas"]), len(partition.replicas))
            if len(partition.isr) >= min_isr:
                maximal_isr = self.maximal_isr(key, partition)
                reached = common(self.log(key, replica) for replica in maximal_isr)
                if len(reached) > len(self.committed.get(key, ())):
                    self.committed[key] = reached

    def maximal_isr(self, key: Key, partition: PartitionRegistration) -> set[int]:
        """Including proposed members, which may be in the ISR before the leader gets the answer."""
        members: set[int] = set(partition.isr)
        now = (*key, partition.leader_epoch, partition.partition_epoch)
        for request in self.in_flight:
            topic = request.topics[0]
            asked = topic.partitions[0]
            index, epochs = asked.partition_index, (asked.leader_epoch, asked.partition_epoch)
            if (topic.topic_id, index, *epochs) == now:
                members |= {state.broker_id for state in asked.new_isr_with_epochs}
        return members

    def all_catch_up(self) -> None:
        """Every leader takes all live replicas into its ISR."""
        live = self.world.live()
        for key, topic, partition in self.partitions():
            self.propose(key, topic, [r for r in partition.replicas if r in live])

    def nobody_keeps_up(self) -> None:
        """Every leader removes all other replicas from its ISR."""
        for key, topic, _ in self.partitions():
            self.propose(key, topic, [])

    def some_keep_up(self) -> None:
        for key, topic, partition in self.partitions():
            self.propose(key, topic, [r for r in partition.replicas if self.chance()])

    def propose(self, key: Key, topic: TopicImage, isr: list[int]) -> None:
        request = self.proposal(key, topic, isr)
        if request is not None:
            self.world.decide(self.world.active.alter_partition(request))

    def proposal(self, key: Key, topic: TopicImage, wanted: list[int]) -> Struct | None:
        """As a live leader proposes it: a joining replica has all that the leader has."""
        partition = topic.partitions[key[1]]
        leader = partition.leader
        if leader == NO_LEADER or not self.running[leader]:
            return None
        isr = [leader]
        for replica in wanted:
            if replica == leader or (replica not in partition.isr and not self.running[replica]):
                continue
            if replica not in partition.isr:
                self.held[key, replica] = self.log(key, leader)
            isr.append(BrokerId(replica))
        return self.world.proposal(partition, isr, topic.name, key[1])

    def propose_later(self) -> None:
        """Every leader proposes all replicas for its ISR; the requests wait in sockets."""
        for key, topic, partition in self.partitions():
            request = self.proposal(key, topic, list(partition.replicas))
            self.in_flight += [request] if request else []

    def late_proposals_arrive(self) -> None:
        while self.in_flight:
            with contextlib.suppress(KafkaError):  # its sender was restarted before it arrived
                request = self.in_flight.pop(0)
                self.world.decide(self.world.active.alter_partition(request))

    # -- brokers -----------------------------------------------------------------------------

    def heartbeat(self) -> None:
        broker = self.broker()
        if self.alive(broker):
            self.world.heartbeat(broker)

    def die(self, *brokers: int) -> None:
        for broker in brokers or (self.broker(),):
            self.running[broker] = False
            self.clean_epoch[broker] = -1
        if self.chance():
            self.time_passes()

    def outage(self) -> None:
        """Some die at the same moment."""
        self.die(*self.rng.sample(BROKERS, self.rng.randint(1, 4)))

    def bounce(self) -> None:
        """kill -9 or a loss of power, and back at once."""
        broker = self.broker()
        self.die(broker)
        self.start(broker, lost=self.rng.randint(0, 3))
        self.world.heartbeat(broker)

    def start_one(self) -> None:
        broker = self.broker()
        if not self.running[broker]:
            self.start(broker, new_disk=self.chance(0.25), lost=self.rng.randint(0, 3))

    def start(self, broker: int, *, new_disk: bool = False, lost: int = 0) -> None:
        """After an unclean stop the newest writes may be lost, with a new disk all of them."""
        if new_disk:
            self.disk[broker] += 1
            self.clean_epoch[broker] = -1
            self.lose(broker, sys.maxsize)
        elif self.clean_epoch[broker] == -1:
            self.lose(broker, lost)
        disks = [self.disk[broker]]
        try:
            self.world.register(broker, disks, previous_epoch=self.clean_epoch[broker])
        except KafkaError as error:
            if error.code is not ErrorCode.duplicate_broker_registration:
                raise
            self.time_passes()
            self.world.register(broker, disks)
        self.running[broker] = True

    def lose(self, broker: int, writes: int) -> None:
        for key, _, partition in self.partitions():
            log = self.log(key, broker)
            self.held[key, broker] = log[: max(0, len(log) - writes)]
            # Records that no electable replica has are lost, and no election can help.
            holders = {*partition.isr, *partition.eligible_leader_replicas}
            if not any(self.has_all(key, replica) for replica in holders):
                committed = self.committed.get(key, ())
                kept = [common([committed, self.log(key, r)]) for r in holders]
                self.committed[key] = max(kept, key=len)

    def stop(self) -> None:
        """A controlled shutdown that completes."""
        broker = self.broker()
        if not self.alive(broker):
            return
        epoch = self.world.image.brokers[BrokerId(broker)].epoch
        self.stopping = broker
        for _ in range(4):
            if self.world.heartbeat(broker, want_shut_down=True).should_shut_down:
                break
            self.time_passes()
        else:
            raise AssertionError("it never may stop")
        self.stopping = None
        self.running[broker] = False
        self.clean_epoch[broker] = epoch

    def unregister(self) -> None:
        """An operator unregisters a broker that never comes back, and neither does its disk."""
        broker = self.broker()
        if broker in self.world.image.brokers and not self.running[broker]:
            self.disk[broker] += 1
            self.clean_epoch[broker] = -1
            self.lose(broker, sys.maxsize)
            request = Struct(broker_id=BrokerId(broker))
            self.world.decide(self.world.active.unregister_broker(request))

    def everybody_comes_back(self) -> None:
        """All brokers are alive: every partition whose data exists gets a leader, deletions end."""
        for broker in BROKERS:
            if not self.alive(broker):
                self.start(broker)
        for _ in range(3):
            self.time_passes()
        assert self.world.live() == list(BROKERS)
        context = self.world.active.context
        assert len(context.deletions) == 0
        for _, _, partition in self.partitions():
            disks = dict(zip(partition.replicas, partition.directories, strict=True))
            there = [r for r in partition.isr if disks[r] == directory(r, self.disk[r])]
            assert partition.leader != NO_LEADER or not there, partition

    # -- operators ---------------------------------------------------------------------------

    def reassign(self) -> None:
        for key, topic, _ in self.partitions():
            if self.chance(0.7):
                continue
            order = self.rng.sample(BROKERS, self.rng.randint(1, 4))
            replicas = [r for r in order if r in self.world.image.brokers]
            self.world.reassign(None if self.chance(0.3) else replicas, topic.name, key[1])
            now = self.world.partition(topic.name, key[1]).replicas
            for broker in BROKERS:  # a replica that was moved away deletes its files
                if broker not in now:
                    self.held.pop((key, broker), None)

    def elect_preferred(self) -> None:
        for key, topic, _ in self.partitions():
            code = self.world.elect(0, topic.name, key[1])
            after = self.world.partition(topic.name, key[1])
            if code in (ErrorCode.none, ErrorCode.election_not_needed):
                assert after.leader == after.replicas[0]

    def elect_unclean(self) -> None:
        for key, topic, partition in self.partitions():
            if partition.leader == NO_LEADER and self.chance(0.3):
                self.unclean_was_allowed.add(key)
                self.world.elect(1, topic.name, key[1])

    def balance(self) -> None:
        self.world.active._balance_at_ms = 0
        self.world.tick()

    def fail_over(self) -> None:
        self.world.fail_over()

    # -- what always holds -------------------------------------------------------------------

    def check(self) -> None:
        self.world.image.validate()
        for key, topic, partition in self.partitions():
            configs = self.world.image.topic_config(topic.name)
            if configs["unclean.leader.election.enable"] == "true":
                self.unclean_was_allowed.add(key)
            self.check_leader(partition)
            self.check_epochs(key, partition)
            self.check_strong_isr(key, partition)
        context = self.world.active.context
        assert context.replicas.illegal_transitions == 0
        assert context.partitions.illegal_transitions == 0
        fresh = ControllerContext(self.world.image)
        assert dict(fresh.partitions) == dict(context.partitions)

    def check_leader(self, partition: PartitionRegistration) -> None:
        if partition.leader != NO_LEADER:
            assert partition.leader in partition.isr
            leader = self.world.image.brokers[partition.leader]
            assert not leader.fenced, "a fenced leader"
            directory_id = partition.directories[partition.replicas.index(leader.id)]
            assert leader.has_online_dir(directory_id), "a leader without its disk"
        moving = {*partition.adding_replicas, *partition.removing_replicas}
        assert moving <= set(partition.replicas)
        assert not set(partition.adding_replicas) & set(partition.removing_replicas)

    def check_epochs(self, key: Key, partition: PartitionRegistration) -> None:
        before = self.epochs.get(key)
        now = (partition.leader_epoch, partition.partition_epoch)
        if before is not None:
            assert now[0] >= before[0]
            assert now[1] >= before[1] + (now[0] > before[0])
        self.epochs[key] = now

    def check_strong_isr(self, key: Key, partition: PartitionRegistration) -> None:
        """Every replica that can be elected has all committed records, unless an unclean election
        was allowed."""
        may_lead = {*partition.isr, *partition.eligible_leader_replicas}
        lacking = [replica for replica in may_lead if not self.has_all(key, replica)]
        if lacking:
            assert key in self.unclean_was_allowed, (
                f"{lacking} of {partition} have {[self.log(key, r) for r in lacking]}, committed "
                f"is {self.committed[key]}"
            )
            logs = [self.log(key, replica) for replica in may_lead]
            self.committed[key] = common([self.committed[key], *logs])


STEP_WEIGHTS = {
    "write": 4,
    "all_catch_up": 3,
    "nobody_keeps_up": 2,
    "some_keep_up": 2,
    "propose_later": 2,
    "late_proposals_arrive": 2,
    "heartbeat": 3,
    "time_passes": 2,
    "die": 2,
    "outage": 1,
    "bounce": 3,
    "start_one": 4,
    "stop": 1,
    "unregister": 1,
    "everybody_comes_back": 1,
    "create_topic": 1,
    "delete_topic": 1,
    "change_min_isr": 1,
    "reassign": 2,
    "elect_preferred": 1,
    "elect_unclean": 1,
    "balance": 1,
    "fail_over": 1,
}
