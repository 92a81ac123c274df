"""Carries out one action of a plan, on a platform and a Kafka cluster.

Every action is idempotent: the next pass observes again and does not plan it a second time.
Returns what Kafka refused, by topic or partition; an AdminError means that there was no answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kafka import actions
from odradek_operator.kafka.actions import Action
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.reconcile.platform import Platform

NOTHING: Mapping[str, str] = {}


def carry_out(
    action: Action, desired: DesiredCluster, platform: Platform, admin: KafkaAdmin
) -> Mapping[str, str]:
    match action:
        case actions.Wait() | actions.Refuse():
            return NOTHING
        case actions.StartBrokers(brokers):
            for broker in brokers:
                wanted = desired.nodes.get(broker)
                platform.start(broker, wanted.settings if wanted else None)
        case actions.Restart(brokers):
            for broker in brokers:
                platform.restart(broker, desired.nodes[broker].settings)
        case actions.StopBroker(broker):
            platform.stop(broker)
        case actions.RemoveBroker(broker, delete_volumes):
            platform.remove(broker, delete_volumes=delete_volumes)
        case _:
            return _send_to_kafka(action, admin)
    return NOTHING


def _send_to_kafka(action: Action, admin: KafkaAdmin) -> Mapping[str, str]:
    match action:
        case actions.Elect(partitions):
            return admin.elect(partitions)
        case actions.Reassign(moves):
            return admin.reassign(moves)
        case actions.CancelMoves(partitions):
            return admin.cancel_moves(partitions)
        case actions.MoveDirectories(moves):
            return admin.move_directories(moves)
        case actions.Throttle(brokers, rate, topics):
            return admin.set_throttle(brokers, rate, topics)
        case actions.Unthrottle(brokers, names):
            return admin.remove_throttle(brokers, names)
        case actions.AlterBrokerConfig(changes):
            return admin.alter_broker_configs(changes)
        case actions.AddVoter(broker):
            return admin.add_voter(broker)
        case actions.RemoveVoter(broker):
            return admin.remove_voter(broker)
        case actions.UnregisterBroker(broker):
            return admin.unregister(broker)
        case actions.CreateTopics(topics):
            return admin.create_topics(
                {
                    t.name: {
                        "num_partitions": t.partitions,
                        "replication_factor": t.replication_factor,
                        "configs": dict(t.config),
                    }
                    for t in topics
                }
            )
        case actions.GrowTopics(partitions):
            return admin.grow_topics(partitions)
        case actions.AlterTopicConfigs(changes):
            return admin.alter_topic_configs(changes)
        case actions.DeleteTopics(topics):
            return admin.delete_topics(topics)
    raise AssertionError(f"no code for action {action}")
