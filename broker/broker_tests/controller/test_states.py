"""The two state machines: exactly the documented diagrams, and no other transition is ever made."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_tests.broker_ids import (
    ids,
)
from broker_tests.controller.support import after, cluster, partition_record
from odradek_broker.controller import partition_states, replica_states
from odradek_broker.controller.context import ControllerContext
from odradek_broker.controller.partition_states import PartitionKey, PartitionState
from odradek_broker.controller.replica_states import PartitionAndReplica, ReplicaState
from odradek_broker.controller.state_machine import StateMachine
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from odradek_protocol.ids import BrokerId

# As in the specification of the state machines.
REPLICA_DIAGRAM = """
  NewReplica --> OfflineReplica
  NewReplica --> OnlineReplica
  OnlineReplica --> OfflineReplica
  OfflineReplica --> OnlineReplica
  OfflineReplica --> OfflineReplica
  OnlineReplica --> OnlineReplica
  OfflineReplica --> ReplicaDeletionStarted
  ReplicaDeletionStarted --> ReplicaDeletionSuccessful
  ReplicaDeletionStarted --> ReplicaDeletionIneligible
  ReplicaDeletionIneligible --> OnlineReplica
  ReplicaDeletionIneligible --> OfflineReplica
  ReplicaDeletionSuccessful --> NonExistentReplica
  NonExistentReplica --> NewReplica
"""
PARTITION_DIAGRAM = """
  NewPartition --> OnlinePartition
  OnlinePartition --> OnlinePartition
  OnlinePartition --> OfflinePartition
  OfflinePartition --> OnlinePartition
  OfflinePartition --> NonExistentPartition
  NonExistentPartition --> NewPartition
"""


@pytest.mark.parametrize(
    ("diagram", "states", "table"),
    [
        (REPLICA_DIAGRAM, ReplicaState, replica_states.TRANSITIONS),
        (PARTITION_DIAGRAM, PartitionState, partition_states.TRANSITIONS),
    ],
)
def test_the_tables_are_the_diagrams(
    diagram: str, states: type[Enum], table: Mapping[Any, Any]
) -> None:
    drawn = set(re.findall(r"(\w+) --> (\w+)", diagram))
    assert drawn == {(a.value, b.value) for a, targets in table.items() for b in targets}
    assert set(table) == set(states)


@given(st.lists(st.sampled_from(ReplicaState), max_size=20))
def test_an_illegal_step_is_counted_and_not_taken(targets: list[ReplicaState]) -> None:
    states = replica_states.replica_states()
    key = PartitionAndReplica(UUID(int=1), 0, BrokerId(1))
    refused = 0
    for target in targets:
        before = states.state(key)
        legal = target in replica_states.TRANSITIONS[before]
        assert states.move(key, target) is legal
        assert states.state(key) is (target if legal else before)
        refused += not legal
    assert states.illegal_transitions == refused


def test_an_illegal_step_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    states = partition_states.partition_states()
    assert not states.move(PartitionKey(UUID(int=1), 7), PartitionState.ONLINE)
    assert "-7: illegal transition NonExistentPartition → OnlinePartition" in caplog.text


class TestDeletion:
    """Topic 9 with one partition on brokers 1, 2, 3; broker 3 is down."""

    TOPIC = UUID(int=9)

    def context(self) -> ControllerContext:
        image = cluster({1: None, 2: None, 3: None}, fenced=[3])
        records: list[MetadataRecord] = [
            TopicRecord("t", self.TOPIC),
            partition_record(self.TOPIC, 0, (1, 2, 3), (1, 2)),
        ]
        return ControllerContext(after(image, records))

    def step(self, context: ControllerContext, *records: MetadataRecord) -> None:
        delta = MetadataDelta(context.image)
        for record in records:
            delta.replay(record)
        context.apply(delta.finish(context.image.offset + len(records)))

    def states(self, context: ControllerContext) -> list[ReplicaState]:
        keys = [PartitionAndReplica(self.TOPIC, 0, BrokerId(replica)) for replica in (1, 2, 3)]
        return [context.replicas.state(key) for key in keys]

    def unfence(self, context: ControllerContext, broker: int) -> None:
        epoch = context.image.brokers[BrokerId(broker)].epoch
        self.step(context, BrokerRegistrationChangeRecord(BrokerId(broker), epoch, fenced=-1))

    def test_a_replica_that_is_down_is_ineligible_and_tried_again(self) -> None:
        context = self.context()
        self.step(context, RemoveTopicRecord(self.TOPIC))
        started, ineligible = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_INELIGIBLE
        gone = ReplicaState.NON_EXISTENT
        assert self.states(context) == [started, started, ineligible]
        assert {key.topic_id for key in context.deletions} == {self.TOPIC}
        removed_at = context.image.offset
        context.deletions.broker_at(BrokerId(1), removed_at)
        context.deletions.broker_at(BrokerId(2), removed_at - 1)
        context.deletions.broker_at(BrokerId(3), removed_at)  # a late report from before it failed
        assert self.states(context) == [gone, started, ineligible]
        self.unfence(context, 3)
        assert self.states(context) == [gone, started, started]
        context.deletions.broker_at(BrokerId(3), context.image.offset)
        context.deletions.broker_at(BrokerId(2), context.image.offset)
        assert self.states(context) == [gone, gone, gone]
        assert len(context.deletions) == 0
        assert len(context.partitions) == len(context.replicas) == 0
        assert context.replicas.illegal_transitions == 0

    def test_a_broker_that_never_comes_back(self) -> None:
        context = self.context()
        self.step(context, RemoveTopicRecord(self.TOPIC))
        self.step(context, UnregisterBrokerRecord(BrokerId(3), 3))
        assert self.states(context)[2] is ReplicaState.NON_EXISTENT
        assert context.replicas.illegal_transitions == 0

    def test_a_replica_that_moves_away_and_back_before_its_files_are_gone(self) -> None:
        context = self.context()
        directory = (UUID(int=101), UUID(int=102))
        away = PartitionChangeRecord(0, self.TOPIC, replicas=ids(1, 2), directories=directory)
        self.step(context, away)
        assert self.states(context)[2] is ReplicaState.DELETION_INELIGIBLE
        self.unfence(context, 3)
        back = (*directory, UUID(int=103))
        self.step(
            context,
            PartitionChangeRecord(0, self.TOPIC, replicas=ids(1, 2, 3), directories=back),
        )
        assert self.states(context) == [ReplicaState.ONLINE] * 3
        assert len(context.deletions) == 0
        assert context.replicas.illegal_transitions == 0

    def test_a_failed_directory_takes_its_replicas_offline(self) -> None:
        context = self.context()
        change = BrokerRegistrationChangeRecord(BrokerId(2), 2, log_dirs=(UUID(int=55),))
        self.step(context, change)
        assert self.states(context)[1] is ReplicaState.OFFLINE


class RandomCluster(RuleBasedStateMachine):
    """Any sequence of committed records moves replicas and partitions only by legal transitions,
    and the states of the machines agree with the image."""

    BROKERS = (1, 2, 3, 4)

    def __init__(self) -> None:
        super().__init__()
        self.context = ControllerContext(cluster(dict.fromkeys(self.BROKERS)))
        self.next_topic = 0
        self.taken: set[tuple[Enum, Enum]] = set()
        self._watch(self.context.replicas)
        self._watch(self.context.partitions)

    def _watch(self, machine: StateMachine[Any, Any]) -> None:
        """Every transition that is really made, as opposed to requested ones."""
        move = machine.move

        def watched(key: Any, *path: Any) -> bool:
            for target in path:
                before = machine.state(key)
                if not move(key, target):
                    return False
                assert target in machine._transitions[before]
                self.taken.add((before, target))
            return True

        machine.move = watched  # type: ignore[method-assign]

    def step(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.context.image)
        for record in records:
            delta.replay(record)
        self.context.apply(delta.finish(self.context.image.offset + len(records)))
        self.context.image.validate()

    def live_brokers(self) -> frozenset[int]:
        brokers = self.context.image.brokers.values()
        return frozenset(broker.id for broker in brokers if not broker.fenced)

    @rule(replicas=st.permutations(BROKERS), count=st.integers(1, 3))
    def create(self, replicas: list[int], count: int) -> None:
        live = self.live_brokers()
        chosen = tuple(replicas[:count])
        isr = tuple(r for r in chosen if r in live)
        if not isr:
            return
        self.next_topic += 1
        topic_id = UUID(int=1000 + self.next_topic)
        self.step(
            TopicRecord(f"t{self.next_topic}", topic_id),
            partition_record(topic_id, 0, chosen, isr),
        )

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        topics = sorted(self.context.image.topics_by_id)
        if topics:
            self.step(RemoveTopicRecord(data.draw(st.sampled_from(topics))))

    @rule(broker=st.sampled_from(BROKERS))
    def toggle_broker(self, broker: int) -> None:
        registration = self.context.image.brokers.get(BrokerId(broker))
        if registration is None:
            return
        fence = 1 if not registration.fenced else -1
        records: list[MetadataRecord] = [
            BrokerRegistrationChangeRecord(registration.id, registration.epoch, fenced=fence)
        ]
        live = (self.live_brokers() | {broker}) - ({broker} if fence > 0 else set())
        for topic in self.context.image.topics.values():
            partition = topic.partitions[0]
            leader = next((r for r in partition.isr if r in live), -1)
            if leader != partition.leader:
                records.append(PartitionChangeRecord(0, topic.id, leader=BrokerId(leader)))
        self.step(*records)

    @rule(broker=st.sampled_from(BROKERS), behind=st.integers(0, 3))
    def heartbeat(self, broker: int, behind: int) -> None:
        self.context.deletions.broker_at(BrokerId(broker), self.context.image.offset - behind)

    @rule(data=st.data(), replicas=st.permutations(BROKERS))
    def move_replicas(self, data: st.DataObject, replicas: list[int]) -> None:
        topics = sorted(self.context.image.topics_by_id)
        if not topics:
            return
        topic_id = data.draw(st.sampled_from(topics))
        partition = self.context.image.topics_by_id[topic_id].partitions[0]
        others = [r for r in replicas if r not in partition.isr]
        target = ids(*partition.isr, *others[: data.draw(st.integers(0, len(others)))])
        directories = tuple(UUID(int=100 + replica) for replica in target)
        self.step(PartitionChangeRecord(0, topic_id, replicas=target, directories=directories))

    @invariant()
    def nothing_illegal_was_even_tried(self) -> None:
        assert self.context.replicas.illegal_transitions == 0
        assert self.context.partitions.illegal_transitions == 0

    @invariant()
    def states_are_those_of_the_image(self) -> None:
        fresh = ControllerContext(self.context.image)
        deleting = set(self.context.deletions)
        assert dict(fresh.partitions) == dict(self.context.partitions)
        known = {key: state for key, state in self.context.replicas if key not in deleting}
        assert known == dict(fresh.replicas)


TestRandomCluster = RandomCluster.TestCase
TestRandomCluster.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
