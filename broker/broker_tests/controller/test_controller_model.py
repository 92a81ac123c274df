"""The active controller under random events: whatever happens, the partitions stay sound.

Brokers start, die, stop, lose their disks; leaders shrink and expand ISRs; operators create,
delete, move, elect, change settings; controllers fail over, in the middle of a batch too. After
each step the invariants of issue 4 hold, and at the end, when everybody is back, every partition
has a leader again and every deletion is complete.

A small model of the data goes along, to tell a clean election from a lossy one: a log is a row
of writes, each named by the leader epoch that made it. Writes are committed when all of the ISR
have them and the ISR is not below min.insync.replicas, as partition/replica_state does it. A
replica that stops uncleanly may lose its newest writes; one that loses its disk loses all.
"""

import contextlib
import random
from collections.abc import Iterable
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_tests.controller.active_support import World, directory, set_config
from broker_tests.controller.support import delete
from odradek_broker.controller.context import ControllerContext
from odradek_broker.metadata.image import PartitionRegistration, TopicImage
from odradek_broker.metadata.records import NO_LEADER
from odradek_broker.model.errors import ErrorCode, KafkaError
from odradek_broker.model.ids import BrokerId
from odradek_broker.wire.struct import Struct

BROKERS = (1, 2, 3, 4)
Key = tuple[UUID, int]
Log = tuple[int, ...]


def common(logs: Iterable[Log]) -> Log:
    """The longest row of writes with which all begin."""
    first, *others = logs
    for other in others:
        same = 0
        while same < min(len(first), len(other)) and first[same] == other[same]:
            same += 1
        first = first[:same]
    return first


class ControllerModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(len(BROKERS), racks={1: "a", 2: "b", 3: "a", 4: "b"})
        self.topics = 0
        self.stopping: int | None = None
        self.running = dict.fromkeys(BROKERS, True)
        self.disk = dict.fromkeys(BROKERS, 0)
        self.clean_epoch = dict.fromkeys(BROKERS, -1)  # what a clean stop wrote down
        self.epochs: dict[Key, tuple[int, int]] = {}
        self.committed: dict[Key, Log] = {}
        self.held: dict[tuple[Key, int], Log] = {}  # by partition and replica
        self.unclean_was_allowed: set[Key] = set()  # by a topic's setting or an operator
        self.in_flight: list[Struct] = []  # proposals on their way

    @initialize()
    def first_topics(self) -> None:
        self.create([1, 2, 3], 1, 2, unclean=False, min_isr=2)
        self.create([2, 3, 1], 2, 3, unclean=False, min_isr=2)

    # -- helpers ---------------------------------------------------------------------------

    def partitions(self) -> list[tuple[Key, TopicImage, PartitionRegistration]]:
        return [
            ((topic.id, index), topic, partition)
            for topic in self.world.image.topics.values()
            for index, partition in topic.partitions.items()
        ]

    def some(self, data: st.DataObject) -> tuple[Key, TopicImage, int] | None:
        found = [(key, topic, key[1]) for key, topic, _ in self.partitions()]
        return data.draw(st.sampled_from(found)) if found else None

    def alive(self, broker: int) -> bool:
        return self.running[broker] and broker in self.world.image.brokers

    def beat(self) -> None:
        for broker in BROKERS:
            if self.alive(broker):
                self.world.heartbeat(broker, want_shut_down=broker == self.stopping)

    def min_isr(self, topic: TopicImage, partition: PartitionRegistration) -> int:
        text = self.world.image.topic_config(topic.name).get("min.insync.replicas", "1")
        return min(int(text), len(partition.replicas))

    # -- topics ------------------------------------------------------------------------------

    @rule(
        replicas=st.permutations(BROKERS),
        count=st.integers(1, 3),
        factor=st.integers(1, 4),
        unclean=st.booleans(),
        min_isr=st.sampled_from([1, 2, 2, 3]),
    )
    def create(
        self, replicas: list[int], count: int, factor: int, unclean: bool, min_isr: int
    ) -> None:
        usable = {broker.id for broker in self.world.image.usable_brokers()}
        registered = [r for r in replicas if r in self.world.image.brokers][:factor]
        if self.topics >= 4 or not usable & set(registered):
            return
        self.topics += 1
        configs = {
            "unclean.leader.election.enable": str(unclean).lower(),
            "min.insync.replicas": str(min_isr),
        }
        self.world.topic(f"t{self.topics}", [registered] * count, configs)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        names = sorted(self.world.image.topics)
        if len(names) > 1:
            name = data.draw(st.sampled_from(names))
            self.world.decide(self.world.active.delete_topics(delete(name)))

    @rule(data=st.data(), value=st.sampled_from(["1", "2", "3"]))
    def change_min_isr(self, data: st.DataObject, value: str) -> None:
        names = sorted(self.world.image.topics)
        if names:
            request = set_config(data.draw(st.sampled_from(names)), "min.insync.replicas", value)
            self.world.decide(self.world.active.incremental_alter_configs(request))

    # -- the data ----------------------------------------------------------------------------

    @rule(data=st.data(), writes=st.integers(1, 3))
    def write(self, data: st.DataObject, writes: int) -> None:
        """Every leader writes; all of its ISR and some of the others fetch everything."""
        for key, topic, partition in self.partitions():
            if partition.leader == NO_LEADER or not self.running[partition.leader]:
                continue
            log = self.log(key, partition.leader) + (partition.leader_epoch,) * writes
            self.held[key, partition.leader] = log
            maximal_isr = self.maximal_isr(key, partition)
            for replica in partition.replicas:
                follows = replica in partition.isr or data.draw(st.booleans())
                if self.running[replica] and follows:
                    self.held[key, replica] = log
            if len(partition.isr) >= self.min_isr(topic, partition):
                reached = common(self.log(key, replica) for replica in maximal_isr)
                if len(reached) > len(self.committed.get(key, ())):
                    self.committed[key] = reached

    def maximal_isr(self, key: Key, partition: PartitionRegistration) -> set[int]:
        """With those that the leader has proposed and that may be in it before it hears so."""
        members = set(partition.isr)
        for request in self.in_flight:
            topic = request.topics[0]
            asked = topic.partitions[0]
            epochs = (asked.leader_epoch, asked.partition_epoch)
            if (topic.topic_id, asked.partition_index) == key and epochs == (
                partition.leader_epoch,
                partition.partition_epoch,
            ):
                members |= {state.broker_id for state in asked.new_isr_with_epochs}
        return members

    def log(self, key: Key, replica: int) -> Log:
        return self.held.get((key, replica), ())

    def has_all(self, key: Key, replica: int) -> bool:
        committed = self.committed.get(key, ())
        return self.log(key, replica)[: len(committed)] == committed

    @rule()
    def all_catch_up(self) -> None:
        """Every leader takes into its ISR who is there."""
        for key, topic, partition in self.partitions():
            there = [r for r in partition.replicas if r in self.world.live()]
            self.propose(key, topic, [r for r in there if self.running[r]])

    @rule(data=st.data())
    def alter_isr(self, data: st.DataObject) -> None:
        """A leader proposes any ISR of replicas that have caught up."""
        chosen = self.some(data)
        if chosen is not None:
            key, topic, index = chosen
            replicas = topic.partitions[index].replicas
            wanted = data.draw(st.sets(st.sampled_from(replicas)))
            self.propose(key, topic, [r for r in replicas if r in wanted])

    def propose(self, key: Key, topic: TopicImage, isr: list[int]) -> None:
        request = self.proposal(key, topic, isr)
        if request is not None:
            self.decide_proposal(request)

    def proposal(self, key: Key, topic: TopicImage, wanted: list[int]) -> Struct | None:
        """As a leader that is alive makes it: who joins has all that the leader has."""
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
            isr.append(replica)
        return self.world.proposal(partition, isr, topic.name, key[1])

    def decide_proposal(self, request: Struct) -> ErrorCode:
        answer = self.world.decide(self.world.active.alter_partition(request))
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    @rule(data=st.data())
    def propose_later(self, data: st.DataObject) -> None:
        """The request lies in a socket for a while."""
        chosen = self.some(data)
        if chosen is not None:
            key, topic, index = chosen
            request = self.proposal(key, topic, list(topic.partitions[index].replicas))
            self.in_flight += [request] if request else []

    @rule()
    def a_late_proposal_arrives(self) -> None:
        if self.in_flight:
            with contextlib.suppress(KafkaError):  # its sender was restarted meanwhile
                self.decide_proposal(self.in_flight.pop(0))

    # -- brokers -----------------------------------------------------------------------------

    @rule(broker=st.sampled_from(BROKERS), noticed=st.booleans())
    def die(self, broker: int, noticed: bool) -> None:
        self.running[broker] = False
        self.clean_epoch[broker] = -1
        if noticed:
            self.time_passes()

    @rule(brokers=st.sets(st.sampled_from(BROKERS), min_size=1))
    def outage(self, brokers: set[int]) -> None:
        """Some die at the same moment."""
        for broker in brokers:
            self.die(broker, noticed=False)
        self.time_passes()

    @rule(broker=st.sampled_from(BROKERS), noticed=st.booleans(), lost=st.integers(0, 3))
    def bounce(self, broker: int, noticed: bool, lost: int) -> None:
        """kill -9 or a loss of power, and back at once."""
        self.die(broker, noticed=noticed)
        self.start(broker, new_disk=False, lost=lost, seed=lost)
        self.world.heartbeat(broker)

    @rule()
    def time_passes(self) -> None:
        """Sessions of the dead end."""
        half_ms = self.world.active.sessions.timeout_ms / 2 + 1
        for _ in range(2):
            self.world.now_ms += half_ms
            self.beat()
        self.world.tick()

    @rule(
        broker=st.sampled_from(BROKERS),
        new_disk=st.sampled_from([False, False, False, True]),
        lost=st.integers(0, 3),
        seed=st.integers(0, 2**16),
    )
    def start(self, broker: int, new_disk: bool, lost: int, seed: int) -> None:
        """After an unclean stop the newest writes may be gone, with a new disk all."""
        if self.running[broker]:
            return
        if new_disk:
            self.disk[broker] += 1
            self.clean_epoch[broker] = -1
        unclean = self.clean_epoch[broker] == -1
        if unclean:
            self.lose(broker, 10**6 if new_disk else lost, random.Random(seed))
        try:
            self.world.register(
                broker, [self.disk[broker]], previous_epoch=self.clean_epoch[broker]
            )
        except KafkaError as error:
            if error.code is not ErrorCode.duplicate_broker_registration:
                raise
            self.time_passes()
            self.world.register(broker, [self.disk[broker]])
        self.running[broker] = True

    def lose(self, broker: int, most: int, rng: random.Random) -> None:
        for key, _, partition in self.partitions():
            log = self.log(key, broker)
            self.held[key, broker] = log[: max(0, len(log) - rng.randint(most // 2, most))]
            # What nobody has any more who should have it is lost, and no election can help.
            holders = {*partition.isr, *partition.eligible_leader_replicas}
            if not any(self.has_all(key, replica) for replica in holders):
                committed = self.committed.get(key, ())
                kept = [common([committed, self.log(key, r)]) for r in holders]
                self.committed[key] = max(kept, key=len)

    @rule(broker=st.sampled_from(BROKERS))
    def heartbeat(self, broker: int) -> None:
        if self.alive(broker):
            self.world.heartbeat(broker)

    @rule(broker=st.sampled_from(BROKERS))
    def stop(self, broker: int) -> None:
        """A controlled shutdown, carried through."""
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

    @rule(broker=st.sampled_from(BROKERS))
    def unregister(self, broker: int) -> None:
        """An operator says that it never comes back, and neither does its disk."""
        if broker in self.world.image.brokers and not self.running[broker]:
            self.disk[broker] += 1
            self.clean_epoch[broker] = -1
            self.lose(broker, 10**6, random.Random(0))
            self.world.decide(
                self.world.active.unregister_broker(Struct(broker_id=BrokerId(broker)))
            )

    @rule()
    def fail_over(self) -> None:
        self.world.fail_over()

    # -- operators ---------------------------------------------------------------------------

    @rule(data=st.data(), order=st.permutations(BROKERS), factor=st.integers(1, 4))
    def reassign(self, data: st.DataObject, order: list[int], factor: int) -> None:
        chosen = self.some(data)
        if chosen is None:
            return
        key, topic, index = chosen
        replicas = [r for r in order if r in self.world.image.brokers][:factor]
        cancel = data.draw(st.sampled_from([False, False, True]))
        self.world.reassign(None if cancel else replicas, topic.name, index)
        self.forget_removed(key)

    def forget_removed(self, key: Key) -> None:
        """A replica that was moved away deletes its files."""
        topic = self.world.image.topics_by_id[key[0]]
        for broker in BROKERS:
            if broker not in topic.partitions[key[1]].replicas:
                self.held.pop((key, broker), None)

    @rule(data=st.data(), kind=st.sampled_from([0, 0, 1]))
    def elect(self, data: st.DataObject, kind: int) -> None:
        chosen = self.some(data)
        if chosen is None:
            return
        key, topic, index = chosen
        if kind == 1:
            self.unclean_was_allowed.add(key)
        code = self.world.elect(kind, topic.name, index)
        after = self.world.partition(topic.name, index)
        if code is ErrorCode.election_not_needed:
            assert after.leader == after.replicas[0] or kind == 1

    @rule()
    def balance(self) -> None:
        self.world.active._balance_at_ms = 0
        self.world.tick()

    # -- what always holds -------------------------------------------------------------------

    @invariant()
    def partitions_are_sound(self) -> None:
        image = self.world.image
        image.validate()
        known = {}
        for key, topic, partition in self.partitions():
            assert partition.leader == NO_LEADER or partition.leader in partition.isr
            if partition.leader != NO_LEADER:
                leader = image.brokers[partition.leader]
                assert not leader.fenced, "a fenced leader"
                at = partition.replicas.index(leader.id)
                assert leader.has_online_dir(partition.directories[at]), "a leader without disk"
            moving = {*partition.adding_replicas, *partition.removing_replicas}
            assert moving <= set(partition.replicas)
            assert not set(partition.adding_replicas) & set(partition.removing_replicas)
            before = self.epochs.get(key, (-1, -1))
            now = (partition.leader_epoch, partition.partition_epoch)
            assert now[0] >= before[0]
            assert now[1] >= before[1]
            if now[0] > before[0]:
                assert now[1] > before[1] or before == (-1, -1)
            known[key] = now
            if (
                self.world.image.topic_config(topic.name)["unclean.leader.election.enable"]
                == "true"
            ):
                self.unclean_was_allowed.add(key)
        self.epochs = known

    @invariant()
    def whoever_may_be_elected_has_all_that_is_committed(self) -> None:
        """StrongIsr, for the eligible too; unless an unclean election was allowed."""
        for key, _, partition in self.partitions():
            may_lead = {*partition.isr, *partition.eligible_leader_replicas}
            lacking = [replica for replica in may_lead if not self.has_all(key, replica)]
            if not lacking:
                continue
            assert key in self.unclean_was_allowed, (
                f"{lacking} of {partition} have {[self.log(key, r) for r in lacking]}, committed "
                f"is {self.committed[key]}"
            )
            logs = [self.log(key, replica) for replica in may_lead]
            self.committed[key] = common([self.committed[key], *logs])

    @invariant()
    def states_are_legal(self) -> None:
        context = self.world.active.context
        assert context.replicas.illegal_transitions == 0
        assert context.partitions.illegal_transitions == 0
        fresh = ControllerContext(self.world.image)
        assert dict(fresh.partitions) == dict(context.partitions)

    # -- the end -----------------------------------------------------------------------------

    @precondition(lambda self: self.world.image.topics)
    @rule()
    def everybody_comes_back(self) -> None:
        """Without new disks: then every partition whose data is there gets a leader."""
        for broker in BROKERS:
            if not self.running[broker] or broker not in self.world.image.brokers:
                self.running[broker] = False
                self.start(broker, new_disk=False, lost=0, seed=0)
        for _ in range(3):
            self.time_passes()
        assert self.world.live() == list(BROKERS)
        assert self.world.active.context.topics_to_delete() == set()
        assert len(self.world.active.context.deletions) == 0
        for key, _, partition in self.partitions():
            disks = {
                replica: partition.directories[partition.replicas.index(replica)]
                for replica in partition.isr
            }
            there = [r for r in partition.isr if disks[r] == directory(r, self.disk[r])]
            if there:
                assert partition.leader != NO_LEADER, f"{key}: {partition}"


TestControllerModel = ControllerModel.TestCase
TestControllerModel.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
