"""Carries out one action of a plan, on a platform and a Kafka cluster.

Every action is idempotent: the next pass observes again and does not plan it a second time.
Returns what Kafka refused, by topic or partition; an AdminError means that there was no answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kafka.actions import (
    Action,
    AddVoter,
    AlterBrokerConfig,
    AlterTopicConfigs,
    CreateTopics,
    DeleteTopics,
    Elect,
    GrowTopics,
    Reassign,
    Refuse,
    RemoveBroker,
    RemoveVoter,
    Restart,
    StartBrokers,
    StopBroker,
    UnregisterBroker,
    Wait,
)
from odradek_operator.kafka.desired import DesiredCluster
from odradek_operator.reconcile.platform import Platform

NOTHING: Mapping[str, str] = {}


def carry_out(
    action: Action, desired: DesiredCluster, platform: Platform, admin: KafkaAdmin
) -> Mapping[str, str]:
    match action:
        case Wait() | Refuse():
            return NOTHING
        case StartBrokers(brokers):
            for broker in brokers:
                wanted = desired.nodes.get(broker)
                platform.start(broker, wanted.settings if wanted else None)
        case Restart(brokers):
            for broker in brokers:
                platform.restart(broker, desired.nodes[broker].settings)
        case StopBroker(broker):
            platform.stop(broker)
        case RemoveBroker(broker, delete_volumes):
            platform.remove(broker, delete_volumes=delete_volumes)
        case _:
            return _send_to_kafka(action, admin)
    return NOTHING


def _send_to_kafka(action: Action, admin: KafkaAdmin) -> Mapping[str, str]:
    match action:
        case Elect(partitions):
            return admin.elect(partitions)
        case Reassign(moves):
            return admin.reassign(moves)
        case AlterBrokerConfig(changes):
            return admin.alter_broker_configs(changes)
        case AddVoter(broker):
            return admin.add_voter(broker)
        case RemoveVoter(broker):
            return admin.remove_voter(broker)
        case UnregisterBroker(broker):
            return admin.unregister(broker)
        case CreateTopics(topics):
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
        case GrowTopics(partitions):
            return admin.grow_topics(partitions)
        case AlterTopicConfigs(changes):
            return admin.alter_topic_configs(changes)
        case DeleteTopics(topics):
            return admin.delete_topics(topics)
    raise AssertionError(f"no code for action {action}")
